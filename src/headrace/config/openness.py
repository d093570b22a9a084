"""Closed until opened: a listener that other machines reach asks who they are, or somebody has said that it need not."""

import ipaddress
from collections.abc import Iterator

from headrace.config.settings import NodeSettings
from headrace.doors.settings import ListenerSettings


def open_listeners(settings: NodeSettings) -> tuple[str, ...]:
    """Those that serve anybody on the network, as `NAME at ADDRESS`; on loopback nobody is asked, and that is no news."""
    return tuple(
        f"{listener.name} at {address}"
        for listener in settings.listeners
        for address in _addresses(listener, settings)
        if not is_loopback(address) and not asks_who_it_is(listener, settings)
    )


def doubtful_listeners(settings: NodeSettings) -> Iterator[str]:
    """Why this node must not start."""
    for listener in settings.listeners:
        if settings.security.open or listener.open or asks_who_it_is(listener, settings):
            continue
        how = "login" if listener.door == "admin" else "sasl"
        for address in _addresses(listener, settings):
            if not is_loopback(address):
                yield (
                    f"listener {listener.name}: {address} is reached by other machines, and would serve anybody; listen on "
                    f"127.0.0.1, ask who they are (listener.{listener.name}.{how} or .tls.client.auth), or say that this is meant: `--open` (security.open) for all listeners, "
                    f"listener.{listener.name}.open=true for this one"
                )


def asks_who_it_is(listener: ListenerSettings, settings: NodeSettings) -> bool:
    is_certified = listener.tls_client_auth == "required" or listener.curve_key is not None
    return bool(listener.sasl) or is_certified or asks_for_login(listener, settings)


def asks_for_login(listener: ListenerSettings, settings: NodeSettings) -> bool:
    """Whether the admin listener serves nobody who has not logged in."""
    if listener.door != "admin":
        return False
    if listener.login is not None:
        return listener.login
    is_meant_open = settings.security.open or listener.open
    return settings.security.authorization_enable and listener.principal is None and not is_meant_open


def passwords_in_the_clear(settings: NodeSettings) -> Iterator[str]:
    """Why this node must not start: whoever sees the network would see what people log in with."""
    for listener in settings.listeners_of("admin"):
        is_plain = listener.tls_certificate is None and not settings.security.plain_insecure
        if not is_plain or not asks_for_login(listener, settings):
            continue
        for address in _addresses(listener, settings):
            if not is_loopback(address):
                yield (
                    f"listener.admin.login: at {address} passwords and tokens would be seen by whoever sees the network; use TLS "
                    "(listener.admin.tls.certificate), or say that this is meant: security.plain.insecure=true"
                )


def _addresses(listener: ListenerSettings, settings: NodeSettings) -> tuple[str, ...]:
    if listener.door == "logjam":
        sockets = settings.logjam
        return (sockets.listen_router, sockets.listen_pull, sockets.listen_pub, sockets.listen_live)
    if listener.door == "admin":
        return (listener.listen, settings.admin.listen_grpc)
    return (listener.listen,)


def is_loopback(address: str) -> bool:
    """A name counts as an address of the network: what it stands for is not ours to say."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
