"""What the log needs of whoever keeps its older records. The tier implements it; the node introduces them."""

from typing import NamedTuple, Protocol

from headrace.records.batch import Piece


class TimedOffset(NamedTuple):
    offset: int
    timestamp_ms: int


class RemoteSegments(Protocol):
    """Records that have left the WAL, by topic id and partition. Offsets below a partition's `uploaded_end`."""

    def segment_count(self, topic_id: bytes, partition: int) -> int: ...

    def size_bytes(self, topic_id: bytes, partition: int) -> int: ...

    async def read(
        self, topic_id: bytes, partition: int, *, offset: int, end_offset: int, max_bytes: int
    ) -> list[Piece]:
        """Whole batches in offset order, beginning with the one that holds `offset` (or the next one behind a gap).

        At least one batch where there is any below `end_offset`; otherwise up to about `max_bytes`. What lies in a file of
        this machine, and has been verified, stays there.
        """
        ...

    async def find_time(self, topic_id: bytes, partition: int, timestamp_ms: int) -> TimedOffset | None:
        """The first record at or after `timestamp_ms`, or None when all are older."""
        ...

    async def newest(self, topic_id: bytes, partition: int) -> TimedOffset | None:
        """The record with the greatest timestamp."""
        ...


class NoRemoteSegments:
    """For a log whose every record is still in the WAL."""

    def segment_count(self, topic_id: bytes, partition: int) -> int:
        return 0

    def size_bytes(self, topic_id: bytes, partition: int) -> int:
        return 0

    async def read(
        self, topic_id: bytes, partition: int, *, offset: int, end_offset: int, max_bytes: int
    ) -> list[Piece]:
        return []

    async def find_time(self, topic_id: bytes, partition: int, timestamp_ms: int) -> TimedOffset | None:
        return None

    async def newest(self, topic_id: bytes, partition: int) -> TimedOffset | None:
        return None
