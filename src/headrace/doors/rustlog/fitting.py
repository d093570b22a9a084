"""How much a frame can carry: what Produce takes, Fetch must be able to give back.

A record is sent as Base64 with words around it, and the words of a FetchResponse are longer than those of a Produce.
"""

from typing import Final

from headrace.wire.rustlog.codec import encode
from headrace.wire.rustlog.codes import LENGTH_FIELD_SIZE
from headrace.wire.rustlog.messages import FetchedRecord, FetchResponse

_NUMBER_MAX: Final = 2**63 - 1


def _words(*records: FetchedRecord) -> int:
    return len(encode(FetchResponse(records=list(records), next_offset=_NUMBER_MAX))) - LENGTH_FIELD_SIZE


_EMPTY: Final = FetchedRecord(offset=_NUMBER_MAX, timestamp=_NUMBER_MAX, payload=b"")
ANSWER_WORDS: Final = _words()
RECORD_WORDS: Final = _words(_EMPTY, _EMPTY) - _words(_EMPTY)
"""Of one record among others, at most."""


def base64_size(size: int) -> int:
    return (size + 2) // 3 * 4


def record_bytes_max(frame_bytes_max: int) -> int:
    """Largest record that an answer of one frame can carry."""
    return (frame_bytes_max - ANSWER_WORDS - RECORD_WORDS) // 4 * 3
