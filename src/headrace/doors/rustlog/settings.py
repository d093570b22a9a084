"""The RustLog door's own settings."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.wire.rustlog.codes import FRAME_BYTES_MAX, RECORD_BYTES_MAX


class RustLogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """RustLog's protocol: plain text and without authentication; put a TLS tunnel in front of it."""

    listen: str = "0.0.0.0:9096"
    """Address the door listens on; port 0 takes any free one. Restart needed."""
    advertised: str | None = None
    """Address others are told, as HOST:PORT. The listener's own when absent. Restart needed."""
    record_max_bytes: Annotated[int, Meta(ge=1, le=RECORD_BYTES_MAX)] = RECORD_BYTES_MAX
    """Largest record after Base64 decoding. A Fetch cannot bring back more than 7,864,209, so only lower values bite."""
    frame_max_bytes: Annotated[int, Meta(ge=1024, le=FRAME_BYTES_MAX)] = FRAME_BYTES_MAX
    """Largest frame taken, and largest answer to a Fetch. Lower it to bound memory; clients may expect the default."""
    offsets_durable: bool = False
    """Keep commits made through this door on disk. Off, they are gone after a restart, as the protocol says."""
    idle_timeout_ms: Annotated[int, Meta(ge=1000)] = 24 * 3600 * 1000
    """How long a silent connection is kept. The protocol sets no limit; half-open ones go with TCP keepalive."""
    handler_timeout_ms: Annotated[int, Meta(ge=100)] = 30_000
    """How long one request may take before it is answered 503. It may still be done after that."""
