"""TLS of a listener: its certificate, whether clients show theirs, and who they are by it.

Certificates are read again when their files change, for connections that come after; those that are there go on. A file that
cannot be read is said, and the former certificate stays. Taking an authority away needs a restart.
"""

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from headrace.broker.access.words import Principal
from headrace.doors.settings import ListenerSettings
from headrace.errors import Denied, Fault, Invalid

HANDSHAKE_SECONDS_MAX: Final = 10.0
_LOOK_SECONDS: Final = 1.0
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The names that RFC 2253 knows, and Kafka's rules are written for."""
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")

log = structlog.get_logger(__name__)


class Tls:
    """One listener's. `context` is the same for as long as the listener is open."""

    def __init__(self, settings: ListenerSettings) -> None:
        assert settings.tls_certificate is not None
        assert settings.tls_key is not None
        self._certificate, self._key = Path(settings.tls_certificate), Path(settings.tls_key)
        self._authorities = None if settings.tls_client_ca is None else Path(settings.tls_client_ca)
        self._listener = settings.name
        self._rules = [parse_rule(each) for each in settings.tls_principal_rules]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._seen = self._stamps()
        try:
            self._read(self.context)
        except (OSError, ssl.SSLError) as error:
            raise Fault(f"listener.{settings.name}.tls: {self._certificate}, {self._key}: {error}") from error
        self.context.verify_mode = _VERIFY[settings.tls_client_auth]

    def _read(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._certificate, self._key)
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            # Tried on another one first: half of a new pair in the context that serves would be worse than the old one.
            self._read(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._read(self.context)
        except (OSError, ssl.SSLError) as error:
            log.error("certificate not read, the former one stays", listener=self._listener, reason=str(error))
        else:
            log.info("certificate read anew", listener=self._listener)

    def _stamps(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in (self._certificate, self._key, self._authorities):
            try:
                stat = None if path is None else path.stat()
            except OSError:
                stat = None
            found.append(None if stat is None else (stat.st_mtime_ns, stat.st_size))
        return found

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal | None:
        """Who the client is by its certificate; None for one that has shown none. Raises `Denied` where no rule fits."""
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return None
        return Principal(map_name(distinguished_name(certificate), self._rules))


async def keep_fresh(many: Iterable[Tls]) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for tls in many:
            tls.refresh()


# Any: Python's own shape of a certificate.
def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """As Java writes it: most specific first, and what would be taken for punctuation escaped (RFC 2253)."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(str(value))}" for name, value in group)
        for group in reversed(certificate.get("subject", ()))
    ]
    return ",".join(parts)


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(escaped) > 1 else escaped


class Rule:
    """`RULE:pattern/replacement/[LU]`, or `DEFAULT`, which leaves a name as it is."""

    def __init__(self, pattern: "re.Pattern[str] | None", replacement: str = "", case: str = "") -> None:
        self._pattern = pattern
        self._replacement = replacement
        self._case = case

    def apply(self, name: str) -> str | None:
        if self._pattern is None:
            return name
        found = self._pattern.match(name)
        if found is None:
            return None
        mapped = self._pattern.sub(lambda match: match.expand(self._replacement), name)
        return mapped.lower() if self._case == "L" else mapped.upper() if self._case == "U" else mapped


def parse_rule(text: str) -> Rule:
    """As of Kafka's `ssl.principal.mapping.rules`; raises `Invalid`."""
    if text == "DEFAULT":
        return Rule(None)
    found = _RULE.fullmatch(text)
    if found is None:
        raise Invalid(f"{text!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
    pattern, replacement, case = found.groups()
    try:
        # Java writes groups in a replacement as $1.
        return Rule(re.compile(pattern), re.sub(r"\$(\d)", r"\\\1", replacement), case)
    except re.error as error:
        raise Invalid(f"{text!r}: {error}") from error


def map_name(name: str, rules: Iterable[Rule]) -> str:
    is_ruled = False
    for rule in rules:
        is_ruled = True
        if (mapped := rule.apply(name)) is not None:
            return mapped
    if is_ruled:
        raise Denied(f"no rule maps the name {name!r}")
    return name
