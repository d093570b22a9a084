"""Raw record batches for tier tests: right headers, right CRC, opaque payload."""

import struct

from crc32c import crc32c

_AFTER_CRC = struct.Struct(">hiqqqhii")


def raw_batch(
    base_offset: int,
    count: int = 1,
    *,
    payload: bytes = b"x" * 20,
    max_timestamp_ms: int = 1_700_000_000_000,
    attributes: int = 0,
    leader_epoch: int = 1,
    producer_id: int = -1,
) -> bytes:
    """A batch whose records section is `payload` as it is: enough for code that never decodes records."""
    tail = (
        _AFTER_CRC.pack(attributes, count - 1, max_timestamp_ms, max_timestamp_ms, producer_id, -1, -1, count) + payload
    )
    head = struct.pack(">qiibI", base_offset, 9 + len(tail), leader_epoch, 2, crc32c(tail))
    return head + tail
