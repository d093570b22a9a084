"""What tells a damaged metastore from a whole one: a CRC for each row, and one digest of all rows. Pure.

Layout in docs/formats/metastore.md.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.control.metastore import KeyValue

Row = tuple[str, bytes, int, int, int, int, int]
_FIELDS: Final = struct.Struct(">QQQQI")
_LEASE: Final = struct.Struct(">QQ")
_DIGEST: Final = struct.Struct(">QQQQQ")
NOT_A_ROW: Final = (TypeError, AttributeError, ValueError, struct.error)
"""Of the CRC of a row: damage can change the type of a column, too."""


class Tally(NamedTuple):
    """All rows in two numbers, which a commit changes by its own rows only."""

    row_count: int
    crc_sum: int

    def plus(self, crcs: Iterable[int]) -> "Tally":
        added = list(crcs)
        return Tally(self.row_count + len(added), self.crc_sum + sum(added))

    def minus(self, crcs: Iterable[int]) -> "Tally":
        gone = list(crcs)
        return Tally(self.row_count - len(gone), self.crc_sum - sum(gone))

    def digest(self, *, revision: int, lease: int, identity: int) -> int:
        return int(crc32c(_DIGEST.pack(self.row_count, self.crc_sum, revision, lease, identity)))


def crc_of(item: KeyValue) -> int:
    return row_crc(item.key, item.value, item.create_revision, item.mod_revision, item.version, item.lease)


def row_crc(key: str, value: bytes, created: int, modified: int, version: int, lease: int) -> int:
    name = key.encode()
    return int(crc32c(_FIELDS.pack(created, modified, version, lease, len(name)) + name + value))


def lease_crc(lease: int, ttl_ms: int) -> int:
    return int(crc32c(_LEASE.pack(lease, ttl_ms)))


def is_whole(row: Row) -> bool:
    try:
        return row_crc(*row[:6]) == row[6]
    except NOT_A_ROW:
        return False
