"""The CRC of many batches, from the CRCs they carry.

Faster than reading the bytes again, and stricter: what has rotted in memory since its producer's CRC was checked does not
match the outcome, where a CRC of the rotten bytes would.
"""

from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from headrace.compiled import compiled
from headrace.records.batch import Buffer

_WORTH_IT: Final = 4 * 1024
"""From this size of a batch on: below it reading the bytes takes no longer."""


def _load() -> Callable[[Buffer, int], int] | None:
    module = compiled("headrace.records._crc")
    return None if module is None else module.crc_of_batches


_crc_of_batches: Final = _load()


def crc_of_batches(batches: Buffer, count: int, crc: int) -> int:
    """The CRC-32C of `count` whole batches that lie back to back, behind bytes whose CRC-32C is `crc`."""
    if _crc_of_batches is None or len(batches) < count * _WORTH_IT:
        return int(crc32c(batches, crc))
    return _crc_of_batches(batches, crc)
