"""The QUIC door's own settings. This module does not import QUIC: a node without the door does not load it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

OFF: Final = "off"


class QuicSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kafka's protocol over QUIC, and HTTP/3, on one UDP port."""

    listen: str = "0.0.0.0:9092"
    """Address the door listens on, with UDP; port 0 takes any free one, and `off` means that there is no such door. Restart needed."""
    advertised: str | None = None
    """Address clients are told to come back to, as HOST:PORT. The listener's own when absent. Restart needed."""
    idle_timeout_ms: Annotated[int, Meta(ge=1000, le=600_000)] = 60_000
    """A client from which nothing comes for so long is gone. Clients that wait send a sign of life; shorter frees memory sooner."""
    connections_max: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Connections at once. Each may have 100 streams, and hold 20 MiB that nobody has read."""
    connections_per_host_max: Annotated[int, Meta(ge=1, le=100_000)] = 32
    """Connections at once from one address."""
    handshakes_per_second_max: Annotated[int, Meta(ge=1, le=100_000)] = 50
    """New connections taken in one second, beyond a burst of as many. A handshake costs two milliseconds of the node's only core; clients that are
    not taken try again by themselves."""
    early_data_enable: bool = True
    """Answer ApiVersions and Metadata, and Fetch where no login is asked for, before a returning client has completed its handshake."""
