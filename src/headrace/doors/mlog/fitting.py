"""How much a frame can carry, by the verb: what Produce takes, every reader must be able to get.

A value is sent as Base64 with words around it, and each answer has other words than the Produce that brought the value. So the
largest value that is taken is the largest that ReplicateStream, whose words are the longest, can send.
"""

from typing import Final

from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import encode
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, FRAME_HEADER_SIZE
from headrace.wire.mlog.replication_batch import HEADER, RECORD_HEADER

_OFFSET_MAX: Final = 2**63 - 1
SURELY_FITS: Final = 3 * 1024 * 1024 - 1024
"""A value up to this fits every answer, whatever its topic is called."""


def _words(message: m.Message) -> int:
    """Payload bytes of a message that carries nothing."""
    return len(encode(message)) - FRAME_HEADER_SIZE


_ENTRY: Final = m.LogEntry(Offset=_OFFSET_MAX, Value=b"")
ENTRIES_WORDS: Final = _words(m.FetchBatchResponse(Entries=()))
ENTRY_WORDS: Final = _words(m.FetchBatchResponse(Entries=(_ENTRY, _ENTRY))) - _words(
    m.FetchBatchResponse(Entries=(_ENTRY,))
)
"""Of one entry among others, at most."""


def base64_size(size: int) -> int:
    return (size + 2) // 3 * 4


def chunk_bytes_max(topic: str) -> int:
    """Largest replication batch that one ReplicateResponse can carry."""
    words = _words(m.ReplicateResponse(Topic=topic, LeaderLEO=_OFFSET_MAX))
    return (FRAME_BYTES_MAX - words) // 4 * 3


def value_bytes_max(topic: str) -> int:
    """Largest value that every reader of `topic` can be sent."""
    return chunk_bytes_max(topic) - HEADER.size - RECORD_HEADER.size
