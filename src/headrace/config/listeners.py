"""Listeners: each door's own, and those that people name themselves.

`listener.NAME.KEY` says something about the listener NAME. A name that is a door's is the door's own listener, whose address
is `listen.DOOR`; any other makes one more, and has to say for which door and where.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

import msgspec

from headrace.config.keys import ENVIRONMENT_PREFIX, Key
from headrace.config.settings import NodeSettings
from headrace.doors.quic.settings import OFF
from headrace.doors.settings import DoorName, ListenerSettings
from headrace.doors.tls import parse_rule
from headrace.errors import Invalid

PREFIX: Final = "listener."
DOORS: Final[tuple[DoorName, ...]] = get_args(DoorName)
_SEVERAL: Final = ("kafka", "rustlog", "mlog")
"""Doors that can have listeners beside their own. Logjam's sockets have one address each, and so has the admin's."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_OF_DOOR: Final = ("door", "listen", "advertised")
"""What the name of a door says already, and its own keys."""
_FIELDS: Final = {
    field.name.replace("_", "."): field for field in msgspec.structs.fields(ListenerSettings) if field.name != "name"
}


def listener_keys(given: Iterable[str], environ: Mapping[str, str]) -> dict[str, Key]:
    """The keys of every listener that somebody says something about; a name that cannot be one has none."""
    names = {name for key in given if (name := _name_of(key)) is not None}
    names |= {name for variable in environ if (name := _name_of_variable(variable)) is not None}
    return {
        f"{PREFIX}{name}.{key}": Key(
            name=f"{PREFIX}{name}.{key}",
            section=f"{PREFIX}{name}",
            field=field.name,
            type=field.type,
            default=None if field.required else field.default,
        )
        for name in sorted(names)
        for key, field in _FIELDS.items()
        if name not in DOORS or field.name not in _OF_DOOR
    }


def listeners(
    settings: NodeSettings, given: Mapping[str, Mapping[str, object]], problems: list[str]
) -> tuple[ListenerSettings, ...]:
    """All that the node opens. `given` has what was said under each section; what is missing or cannot be is in `problems`."""
    found = []
    for door in DOORS:
        section = getattr(settings, door)
        listen = section.listen_router if door == "logjam" else section.listen
        advertised = getattr(section, "advertised", None)
        said = given.get(PREFIX + door, {})
        if listen == OFF:
            problems += [f"{PREFIX}{door}.{key.replace('_', '.')}: listen.{door} is off" for key in said]
            continue
        found.append(_built(name=door, door=door, listen=listen, advertised=advertised, **said))
    for section_name, said in given.items():
        name = section_name.removeprefix(PREFIX)
        if name == section_name or name in DOORS:
            continue
        missing = [key for key in ("door", "listen") if said.get(key) is None]
        problems += [f"{section_name}.{key}: required, and nobody gave it" for key in missing]
        if said.get("door") not in (*_SEVERAL, None):
            problems.append(f"{section_name}.door: expected one of {', '.join(_SEVERAL)}, got {said['door']!r}")
        elif not missing:
            found.append(_built(name=name, **said))
    for listener in found:
        problems += _wrong_login(listener, settings)
    return tuple(found)


def _wrong_login(listener: ListenerSettings, settings: NodeSettings) -> Iterator[str]:
    key = f"{PREFIX}{listener.name}.sasl"
    is_encrypted = listener.tls_certificate is not None or listener.door == "quic"
    if listener.sasl and listener.door not in ("kafka", "quic"):
        yield f"{key}: the protocol of {listener.door} has no login"
    elif "PLAIN" in listener.sasl and not is_encrypted and not settings.security.plain_insecure:
        yield (
            f"{key}: PLAIN shows passwords to whoever sees the network; use TLS ({PREFIX}{listener.name}.tls.certificate), or "
            "say that this is meant: security.plain.insecure=true"
        )
    elif "OAUTHBEARER" in listener.sasl:
        yield from _wrong_tokens(listener, settings, is_encrypted=is_encrypted)
    yield from _wrong_tls(listener)
    if listener.login is not None and listener.door != "admin":
        yield f"{PREFIX}{listener.name}.login: only the admin listener knows it; Kafka's is {PREFIX}{listener.name}.sasl"
    if listener.login and listener.principal is not None:
        yield f"{PREFIX}{listener.name}.principal: whoever comes says who they are there; it is either this or login"
    if listener.sasl and listener.principal is not None:
        yield f"{PREFIX}{listener.name}.principal: clients say who they are there; it is either this or sasl"


def _wrong_tokens(listener: ListenerSettings, settings: NodeSettings, *, is_encrypted: bool) -> Iterator[str]:
    key = f"{PREFIX}{listener.name}.sasl"
    security = settings.security
    if not is_encrypted and not security.plain_insecure:
        yield (
            f"{key}: OAUTHBEARER shows tokens to whoever sees the network; use TLS ({PREFIX}{listener.name}.tls.certificate), or "
            "say that this is meant: security.plain.insecure=true"
        )
    for name in ("jwks_file", "issuer", "audience"):
        if getattr(security, f"oauth_{name}") is None:
            yield f"{key}: OAUTHBEARER needs security.oauth.{name.replace('_', '.')}"


def _wrong_tls(listener: ListenerSettings) -> Iterator[str]:
    key = f"{PREFIX}{listener.name}.tls"
    if (listener.tls_certificate is None) != (listener.tls_key is None):
        yield f"{key}.certificate and {key}.key: one needs the other"
    if listener.tls_certificate is not None and listener.door == "logjam":
        yield f"{key}.certificate: ZeroMQ does not speak TLS"
    if listener.tls_client_auth != "none" and listener.door == "quic":
        yield f"{key}.client.auth: QUIC does not ask clients for certificates; let them log in ({PREFIX}{listener.name}.sasl)"
    elif listener.tls_client_auth != "none" and (listener.tls_certificate is None or listener.tls_client_ca is None):
        yield f"{key}.client.auth: needs {key}.certificate and {key}.client.ca"
    curve = f"{PREFIX}{listener.name}.curve"
    if (listener.curve_key is None) != (listener.curve_clients is None):
        yield f"{curve}.key and {curve}.clients: one needs the other"
    if listener.curve_key is not None and listener.door != "logjam":
        yield f"{curve}.key: only Logjam's sockets speak CURVE"
    for rule in listener.tls_principal_rules:
        try:
            parse_rule(rule)
        except Invalid as error:
            yield f"{key}.principal.rules: {error}"


def _built(**fields: object) -> ListenerSettings:
    return msgspec.convert(fields, ListenerSettings)


def _name_of(key: str) -> str | None:
    prefix, _, rest = key.partition(".")
    name, dot, _ = rest.partition(".")
    return name if f"{prefix}." == PREFIX and dot and _NAME.fullmatch(name) else None


def _name_of_variable(variable: str) -> str | None:
    """`HEADRACE_LISTENER_OUTSIDE_LISTEN` speaks of the listener `outside`."""
    start = (ENVIRONMENT_PREFIX + PREFIX.replace(".", "_")).upper()
    for key in _FIELDS:
        end = "_" + key.upper().replace(".", "_")
        if variable.startswith(start) and variable.endswith(end):
            name = variable[len(start) : -len(end)].lower()
            if _NAME.fullmatch(name):
                return name
    return None
