"""The Kafka door's own settings."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.limits import FRAME_BYTES_MAX


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kafka's protocol over TCP."""

    listen: str = "0.0.0.0:9092"
    """Address the door listens on; port 0 takes any free one. Restart needed."""
    advertised: str | None = None
    """Address clients are told to come back to, as HOST:PORT. The listener's own when absent. Restart needed."""
    auto_create_topics_enable: bool = True
    """Create a topic when a client asks for its metadata or produces to it. Convenient, and typos become topics."""
    num_partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Partitions of a topic whose creator did not say."""
    socket_request_max_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)] = FRAME_BYTES_MAX
    """Largest request taken; checked before a buffer grows."""
    connections_max_idle_ms: Annotated[int, Meta(ge=1000, le=2**31 - 1)] = 600_000
    """A connection on which nothing comes for so long, and nothing is owed, is closed."""
    fetch_max_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)] = 57_671_680
    """Largest fetch answered, whatever the client asks for (its first batch excepted)."""
    fetch_sessions_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 1000
    """Incremental fetch sessions kept; the least recently used one goes. Zero switches them off."""
