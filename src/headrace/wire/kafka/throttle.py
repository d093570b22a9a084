"""Where the throttle time stands in the answers that are not made of a `Message`: it is set after they are encoded."""

import struct
from collections.abc import Sequence

from headrace.records.batch import Piece
from headrace.wire.kafka.api_keys import FLEXIBLE_FROM, ApiKey
from headrace.wire.kafka.headers import has_tagged_response_header

_SINCE = {ApiKey.PRODUCE: 1, ApiKey.FETCH: 1, ApiKey.METADATA: 3}


def set_throttle(answer: Sequence[Piece], key: int, version: int, throttle_ms: int) -> Sequence[Piece]:
    """A whole response frame of Produce, Fetch or Metadata with another throttle time."""
    if not answer or version < _SINCE[ApiKey(key)]:
        return answer
    first, *rest = answer
    assert isinstance(first, bytes | bytearray | memoryview)
    head = bytearray(first)
    if key == ApiKey.PRODUCE:
        # The last field, but for the end of the tagged ones; it comes in one piece.
        at = len(head) - (5 if version >= FLEXIBLE_FROM[key] else 4)
    else:
        at = 9 if has_tagged_response_header(key, version) else 8
    struct.pack_into(">i", head, at, throttle_ms)
    return [head, *rest]
