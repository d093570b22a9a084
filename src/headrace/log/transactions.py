"""What one partition knows of transactions: which are open, which were aborted, and how far it is decided.

The last stable offset is the end of what a `read_committed` reader may see: no record below it belongs to a
transaction without an outcome. An outcome counts only when its marker is itself below the high watermark;
until then the marker could be lost with this leader, and a reader that had passed it could not be recalled.

The class is pure bookkeeping over offsets. It knows neither batches nor coordinators; sequence numbers and
producer epochs are the business of the producer state beside it.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

import msgspec


class AbortedTransaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Readers at read_committed skip the records of `producer_id` in [first_offset, marker_offset)."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int
    """Last stable offset right after the marker: every later entry starts at or above it."""


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    producer_id: int
    first_offset: int


class DecidedTransaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Ended by a marker that was not yet below the high watermark."""

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of a `TransactionIndex`, for a checkpoint."""

    open: list[OpenTransaction] = []
    decided: list[DecidedTransaction] = []
    aborted: list[AbortedTransaction] = []


@dataclass(slots=True)
class TransactionIndex:
    _open: dict[int, int] = field(default_factory=dict)
    """Producer id to first offset. Offsets are noted in log order, so the first entry is the lowest."""
    _decided: deque[DecidedTransaction] = field(default_factory=deque)
    """Ended, marker at or above the high watermark last asked about; in marker order."""
    _aborted: list[AbortedTransaction] = field(default_factory=list)
    """In marker order, which is the order in which they can be searched by the start of a read."""
    _log_start: int = 0

    def note_batch(self, producer_id: int, base_offset: int, is_transactional: bool) -> None:
        """A data batch was appended. The first transactional one of a producer opens its transaction."""
        if is_transactional and producer_id not in self._open:
            self._open[producer_id] = base_offset

    def end(self, producer_id: int, commit: bool, marker_offset: int) -> AbortedTransaction | None:
        """A marker was appended; gives the aborted range, if records are now to be skipped.

        A marker without an open transaction is harmless: coordinators repeat markers after a crash.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._decided.append(
            DecidedTransaction(producer_id=producer_id, first_offset=first_offset, marker_offset=marker_offset)
        )
        if commit:
            return None
        aborted = AbortedTransaction(
            producer_id=producer_id,
            first_offset=first_offset,
            marker_offset=marker_offset,
            stable_offset=next(iter(self._open.values()), marker_offset + 1),
        )
        self._aborted.append(aborted)
        return aborted

    def last_stable_offset(self, high_watermark: int) -> int:
        """Call with the high watermark of the moment; it only rises."""
        decided = self._decided
        while decided and decided[0].marker_offset < high_watermark:
            decided.popleft()
        if not self._open and not decided:
            return high_watermark
        stable = min(high_watermark, next(iter(self._open.values()), high_watermark))
        for transaction in decided:
            stable = min(stable, transaction.first_offset)
        return max(stable, self._log_start)

    def first_offset(self, producer_id: int) -> int | None:
        """Where the producer's open transaction begins; None when it has none."""
        return self._open.get(producer_id)

    def open_transactions(self) -> list[OpenTransaction]:
        return [OpenTransaction(producer_id=pid, first_offset=first) for pid, first in self._open.items()]

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end)."""
        aborted = self._aborted
        found = []
        for index in range(bisect_left(aborted, start, key=_marker_offset), len(aborted)):
            transaction = aborted[index]
            if transaction.first_offset < end:
                found.append(transaction)
            if transaction.stable_offset >= end:
                break
        return found

    def truncate_below(self, log_start: int) -> None:
        """Records below `log_start` are gone: retention, DeleteRecords."""
        self._log_start = max(self._log_start, log_start)
        del self._aborted[: bisect_left(self._aborted, log_start, key=_marker_offset)]

    def forget_from(self, offset: int) -> None:
        """Records from `offset` on are lost. Outcomes stay: of records below they are the only ones there will ever be."""
        self._open = {producer_id: first for producer_id, first in self._open.items() if first < offset}
        self._decided = deque(each for each in self._decided if each.first_offset < offset)
        self._aborted = [each for each in self._aborted if each.first_offset < offset]

    def snapshot(self) -> TransactionSnapshot:
        return TransactionSnapshot(
            open=self.open_transactions(), decided=list(self._decided), aborted=list(self._aborted)
        )

    @classmethod
    def restore(cls, snapshot: TransactionSnapshot) -> "TransactionIndex":
        return cls(
            _open={each.producer_id: each.first_offset for each in snapshot.open},
            _decided=deque(snapshot.decided),
            _aborted=list(snapshot.aborted),
        )

    def check_invariants(self) -> None:
        firsts = list(self._open.values())
        assert firsts == sorted(firsts), "open transactions out of log order"
        markers = [each.marker_offset for each in self._aborted]
        assert markers == sorted(set(markers)), "aborted transactions out of marker order"
        decided = [each.marker_offset for each in self._decided]
        assert decided == sorted(set(decided)), "decided transactions out of marker order"
        for each in self._aborted:
            assert each.first_offset < each.marker_offset, "a marker precedes its records"


def _marker_offset(transaction: AbortedTransaction) -> int:
    return transaction.marker_offset
