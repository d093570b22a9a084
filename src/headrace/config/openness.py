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
        if not is_loopback(address) and not asks_who_it_is(listener)
    )


def doubtful_listeners(settings: NodeSettings) -> Iterator[str]:
    """Why this node must not start."""
    for listener in settings.listeners:
        if settings.security.open or listener.open or asks_who_it_is(listener):
            continue
        for address in _addresses(listener, settings):
            if not is_loopback(address):
                yield (
                    f"listener {listener.name}: {address} is reached by other machines, and would serve anybody; listen on "
                    f"127.0.0.1, ask who they are (listener.{listener.name}.sasl or .tls.client.auth), or say that this is meant: `--open` (security.open) for all listeners, "
                    f"listener.{listener.name}.open=true for this one"
                )


def asks_who_it_is(listener: ListenerSettings) -> bool:
    return bool(listener.sasl) or listener.tls_client_auth == "required" or listener.curve_key is not None


def _addresses(listener: ListenerSettings, settings: NodeSettings) -> tuple[str, ...]:
    if listener.door == "logjam":
        sockets = settings.logjam
        return (sockets.listen_router, sockets.listen_pull, sockets.listen_pub, sockets.listen_live)
    return (listener.listen,)


def is_loopback(address: str) -> bool:
    """A name counts as an address of the network: what it stands for is not ours to say."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
