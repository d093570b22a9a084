"""What a browser could be made to send: requests by other names, and from other sites.

A page of somebody else's cannot be kept from making a browser on this machine talk to this port. So names are checked: `Host` must
be one that this node is known by, or DNS rebinding would make a stranger's page same-origin with us; and a request that changes
something must come from our own pages, or from no page at all.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.errors import Denied

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SECURITY_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}

    def check(self, headers: Mapping[str, str], *, is_change: bool, reached: str = "") -> None:
        """Raise `Denied` unless the request names us, and, if it changes something, does not come from another site.

        `reached` is the address of ours that the connection came to. It is a name of ours as well: rebinding needs a name in the
        DNS, and an address is none.
        """
        host = name_of(headers.get("host", ""))
        if host not in self._hosts and not (host and host == reached):
            raise Denied(f"this node is not known as {host[:100]!r}; the setting admin.hosts names more")
        if not is_change:
            return
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin, reached):
            raise Denied("a change may not come from another site's page")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Denied("a change may not come from another site's page")

    def _is_ours(self, origin: str, reached: str) -> bool:
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:
            return False
        return host in self._hosts or bool(host and host == reached)


def reached_address(scope: Mapping[str, Any]) -> str:  # Any: as ASGI has it
    """Of ours, by which a request came; empty for the socket in the data directory."""
    server = scope.get("server")
    return "" if not server else str(server[0])


def name_of(authority: str) -> str:
    """The name in `name:port`, `[::1]:port` or a name alone."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
