"""What is known of whoever asks, before anybody has looked whether it is true."""

import ipaddress
from typing import Any, Final

import msgspec
from starlette.requests import Request

OWNER_STATE: Final = "headrace.is_owner"
CERTIFICATE_STATE: Final = "headrace.certificate"
"""What a connection says of itself, in the state of each of its requests."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    """Of the other end of the connection."""
    is_secure: bool = False
    """Nobody on the way can read along: TLS."""
    is_owner: bool = False
    """Came through the socket in the data directory."""
    certificate: str | None = None
    """The principal that a certificate says they are; the handshake has proved it."""
    authorization: str = ""
    """The header of that name."""
    session: str = ""
    """The console's cookie."""

    def __repr__(self) -> str:
        """Without what opens doors: callers end up in tracebacks."""
        return f"Caller({self.address})"

    @property
    def is_local(self) -> bool:
        """On this machine."""
        try:
            return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback
        except ValueError:
            return False

    @property
    def host(self) -> str:
        """As access rules name it: a client of IPv4 that an IPv6 socket has taken is the same client."""
        try:
            address = ipaddress.ip_address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        return str(getattr(address, "ipv4_mapped", None) or address)


def caller_of(request: Request, *, session: str = "") -> Caller:
    state: dict[str, Any] = request.scope.get("state") or {}  # Any: ours and others' own
    return Caller(
        address=request.client.host if request.client is not None else "",
        is_secure=request.scope.get("scheme") == "https",
        is_owner=bool(state.get(OWNER_STATE)),
        certificate=state.get(CERTIFICATE_STATE),
        authorization=request.headers.get("authorization", ""),
        session=session,
    )
