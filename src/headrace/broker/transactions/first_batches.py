"""First batches of transactions, as one partition meets them: what follows a refused one must not overtake it (KIP-890).

A producer sends several batches without waiting. If the first of them is refused for the moment, it is sent again; those behind
it must be refused until then, or the log would have them in another order. Where a partition knows batches of the
producer, sequences alone decide that. This is for producers of which it knows none: a batch that is refused leaves the
lowest sequence that it may begin with.

Kept in memory only, and of the leader's own refusals: a restart ends the connections on which such batches were under way, and what is
sent again to another leader goes on from there. Remembered beyond that, a refusal would fail the producer for good where this broker
leads the partition once more.
"""

from dataclasses import dataclass
from typing import Final

from headrace.log.partition import PartitionLog
from headrace.records.batch import BatchHeader

REFUSED_MAX: Final = 10_000
"""Producers and partitions remembered. Beyond that the oldest is forgotten: it was refused, and has not come back since."""

_Place = tuple[bytes, int, int, int]
"""Topic id, partition, leader epoch, producer id."""


@dataclass(slots=True)
class _Refused:
    begins_at_zero: bool
    epoch: int
    lowest_sequence: int


class FirstBatches:
    def __init__(self) -> None:
        self._refused: dict[_Place, _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def sequence_max(self, partition: PartitionLog, header: BatchHeader, *, begins_at_zero: bool) -> int | None:
        """The highest sequence that this batch may have; None where only what the log knows decides.

        `begins_at_zero` says that each transaction of this producer has an epoch of its own (KIP-890, version 2).
        """
        refused = self._refused.get(_place(partition, header)) if self._refused else None
        if refused is not None:
            begins_at_zero = refused.begins_at_zero
        if begins_at_zero and (partition.producers is None or partition.producers.is_empty(header.producer_id)):
            return 0
        return None if refused is None or header.producer_epoch > refused.epoch else refused.lowest_sequence

    def note_refused(self, partition: PartitionLog, header: BatchHeader, *, begins_at_zero: bool) -> None:
        if partition.removed or is_open_in(partition, header.producer_id, header.producer_epoch):
            return  # It is sent again to whoever leads; or none of its batches is the first any more.
        place = _place(partition, header)
        refused = self._refused.get(place)
        if refused is None:
            if len(self._refused) >= REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            self._refused[place] = _Refused(begins_at_zero, header.producer_epoch, header.base_sequence)
        elif header.producer_epoch > refused.epoch:
            refused.epoch, refused.lowest_sequence = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == refused.epoch:
            refused.lowest_sequence = min(refused.lowest_sequence, header.base_sequence)

    def note_taken(self, partition: PartitionLog, header: BatchHeader) -> None:
        if self._refused:
            self._refused.pop(_place(partition, header), None)


def _place(partition: PartitionLog, header: BatchHeader) -> _Place:
    return partition.topic_id, partition.index, partition.leader_epoch, header.producer_id


def is_open_in(partition: PartitionLog, producer_id: int, epoch: int) -> bool:
    """Whether the partition has records of a transaction of this producer epoch that has not ended."""
    transactions, producers = partition.transactions, partition.producers
    if transactions is None or producers is None or transactions.first_offset(producer_id) is None:
        return False
    return producers.epoch_of(producer_id) == epoch
