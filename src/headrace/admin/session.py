"""What the admin door may know of its node: whether it is well, and its numbers."""

from collections.abc import Callable

import msgspec

from headrace.telemetry.metrics import Metrics


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of /health."""

    is_ready: bool
    """Every door listens and recovery is done."""
    broker_id: str
    version: str
    uptime_ms: int
    doors: dict[str, str] = {}
    """Door name to host:port, as in endpoints.json."""
    open_listeners: tuple[str, ...] = ()
    """Listeners that serve anybody on the network, each with its address."""
    quic_fingerprint: str | None = None
    """SHA-256 of the certificate that the QUIC door shows; None where there is no such door."""
    problems: tuple[str, ...] = ()
    """What an operator should look at, in words. A node with problems may still be ready."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node as the admin door sees it; the node itself fills this in."""

    metrics: Metrics
    health: Callable[[], Health]
