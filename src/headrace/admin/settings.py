"""Settings of the admin door."""

import msgspec


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the node answers about itself."""

    listen: str = "0.0.0.0:9642"
    """Address of /health, /ready, /metrics, the REST API and the console. The API and the console answer this machine only; the rest answers everybody who reaches it, and says much: keep it inside."""

    advertised: str | None = None
    """Address that others are told, where it differs from the one listened on."""

    listen_grpc: str = "127.0.0.1:9643"
    """Address of the same API over gRPC. It answers this machine only."""

    hosts: tuple[str, ...] = ()
    """More names by which browsers may call the API and the console: that of a proxy in front, for one. Any other `Host` is refused, or a stranger's page could use this node through a browser on this machine."""
