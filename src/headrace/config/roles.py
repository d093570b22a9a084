"""What a process is: a node alone, or a broker or a controller of several. Each has its own defaults and demands."""

from collections.abc import Iterator
from typing import Final, Literal

from headrace.config.openness import is_loopback
from headrace.config.settings import NodeSettings

Role = Literal["node", "broker", "controller"]

_TLS: Final = ("rpc.tls.ca", "rpc.tls.certificate", "rpc.tls.key")


def wrong_for(role: Role, settings: NodeSettings) -> Iterator[str]:
    """Why a process of this role must not start."""
    if role == "node":
        return
    control = settings.control
    given = (control.rpc_tls_ca, control.rpc_tls_certificate, control.rpc_tls_key)
    if any(given) and not all(given):
        yield f"{', '.join(_TLS)}: one needs the others"
    for name, many in (
        ("controller.endpoints", control.controller_endpoints),
        ("metastore.endpoints", control.metastore_endpoints),
    ):
        if not many:
            yield f"{name}: names nobody"
    if role == "controller":
        yield from _wrong_for_controller(settings)
    else:
        yield from _wrong_for_broker(settings)


def _wrong_for_controller(settings: NodeSettings) -> Iterator[str]:
    control = settings.control
    if control.node_id is None:
        yield "node.id: required, and nobody gave it"
    yield from _same_ports({"listen.rpc": control.listen_rpc, "listen.http": control.listen_http})
    if not is_loopback(control.listen_rpc) and not control.has_rpc_tls and not settings.security.open:
        yield (
            f"listen.rpc: {control.listen_rpc} is reached by other machines, and would let anybody change everything; listen on "
            "127.0.0.1, let nodes prove who they are (rpc.tls.*, see `headrace cluster init`), or say that this is meant: security.open"
        )
    if not is_loopback(control.listen_http) and not settings.security.open:
        yield (
            f"listen.http: {control.listen_http} is reached by other machines, and tells anybody how this controller is; listen on "
            "127.0.0.1, or say that this is meant: security.open"
        )


def _wrong_for_broker(settings: NodeSettings) -> Iterator[str]:
    control = settings.control
    for endpoint in filter(is_loopback, control.controller_endpoints):
        doors = {f"listener {each.name}": each.listen for each in settings.listeners if each.door != "quic"}
        yield from _same_ports({"controller.endpoints": endpoint, "listen.peer": control.listen_peer} | doors)
    others = [each for each in control.controller_endpoints if not is_loopback(each)]
    if others and not control.has_rpc_tls and not settings.security.open:
        yield (
            f"controller.endpoints: {', '.join(others)} is another machine, and anybody on the way could be it; set rpc.tls.* "
            "(see `headrace cluster init`), or say that this is meant: security.open"
        )
    if not is_loopback(control.listen_peer) and not control.has_rpc_tls and not settings.security.open:
        yield (
            f"listen.peer: {control.listen_peer} is reached by other machines, and would let anybody end transactions; listen on "
            "127.0.0.1, let nodes prove who they are (rpc.tls.*, see `headrace cluster init`), or say that this is meant: security.open"
        )


def _same_ports(addresses: dict[str, str]) -> Iterator[str]:
    """One process, or one machine, cannot have a port twice. Port 0 is any that is free."""
    seen: dict[str, str] = {}
    for name, address in addresses.items():
        port = address.rpartition(":")[2]
        if port != "0" and port in seen:
            yield f"{seen[port]} and {name}: both are on port {port}, and must differ"
        seen.setdefault(port, name)
