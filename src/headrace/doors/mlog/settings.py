"""The mlog door's own settings."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.wire.mlog.codes import FRAME_BYTES_MAX


class MlogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mlog's protocol, as its Go programs speak it."""

    listen: str = "0.0.0.0:9095"
    """Address the door listens on; port 0 takes any free one. Restart needed."""
    advertised: str | None = None
    """Address clients are told for every leader, as HOST:PORT. When absent the listener's own; on 0.0.0.0 the one that the
    client came by. Restart needed."""
    frame_max_bytes: Annotated[int, Meta(ge=1024, le=FRAME_BYTES_MAX)] = FRAME_BYTES_MAX
    """Largest frame taken. Lower it to bound memory per connection; clients may expect the default."""
    idle_timeout_ms: Annotated[int, Meta(ge=1000)] = 5 * 60 * 1000
    """How long a silent connection is kept."""
    handler_timeout_ms: Annotated[int, Meta(ge=100)] = 30_000
    """How long one request may take before it is answered with an error. It may still be done after that."""
    ack_timeout_ms: Annotated[int, Meta(ge=100)] = 5_000
    """How long a produce with AckAll waits for its replicas before code 16."""
