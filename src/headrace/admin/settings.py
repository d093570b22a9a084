"""Settings of the admin door."""

from typing import Annotated

import msgspec
from msgspec import Meta


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the node answers about itself."""

    listen: str = "0.0.0.0:9642"
    """Address of /health, /ready, /metrics, the REST API and the console. The API and the console answer this machine, and whoever logs in; the rest answers everybody who reaches it, and says much: keep it inside."""

    advertised: str | None = None
    """Address that others are told, where it differs from the one listened on."""

    listen_grpc: str = "127.0.0.1:9643"
    """Address of the same API over gRPC, with the login and the certificate of the admin listener."""

    hosts: tuple[str, ...] = ()
    """More names by which browsers may call the API and the console: that of a proxy in front, for one. Any other `Host` is refused, or a stranger's page could use this node through a browser on this machine."""

    session_ms: Annotated[int, Meta(ge=60_000, le=30 * 24 * 3_600_000)] = 12 * 3_600_000
    """How long a login at the console holds. Restart needed."""

    sql_timeout_ms: Annotated[int, Meta(ge=1_000, le=24 * 3_600_000)] = 300_000
    """How long a query of SQL may take before its process is ended, the start of Spark included. Longer lets larger topics be read, and others wait. Restart needed."""

    brokers_ca: str | None = None
    """For controllers: file with the certificates of those who sign the brokers' admin certificates. With it, calls are passed on over TLS. Restart needed."""
