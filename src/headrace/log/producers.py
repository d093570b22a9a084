"""What a partition remembers of its idempotent producers: epoch and the last five batches of each.

Enough to recognise a repeated batch and answer with its original offset, also after a restart: the state is part of
the checkpoint and is rebuilt from batch headers behind it. Rules are Kafka's: a producer we know nothing of may
begin with any sequence; a known one must continue where it left off, and with 0 where nothing but a marker has its
epoch; sequences wrap at 2^31.
"""

from collections import deque
from collections.abc import Container, Iterable
from typing import NamedTuple

import msgspec

from headrace.errors import OutOfOrderSequence, ProducerFenced, StaleEpoch
from headrace.limits import PRODUCER_BATCHES_KEPT
from headrace.records.batch import BatchHeader

_SEQUENCE_SPACE = 1 << 31


class SentBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


class ProducerSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One producer in a checkpoint."""

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    batches: list[tuple[int, int, int, int]]
    coordinator_epoch: int = -1
    seen_ms: int = 0
    begins_at_zero: bool = False


class Producer:
    __slots__ = ("batches", "begins_at_zero", "coordinator_epoch", "epoch", "last_timestamp_ms", "seen_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[SentBatch] = deque(maxlen=PRODUCER_BATCHES_KEPT)
        self.last_timestamp_ms = -1
        """Of its last batch, as the client has it."""
        self.coordinator_epoch = -1
        """Of the marker that ended its last transaction; -1 before any did."""
        self.seen_ms = 0
        """When it last wrote, by our clock; 0 where we only know that it did. Clients write yesterday's records today:
        going by their timestamps would forget a producer while it writes, and take its next retry for news."""
        self.begins_at_zero = False
        """Its epoch is known from a marker, and no batch has followed. Without batches otherwise, those it had are lost,
        and it may go on from any sequence."""


class Producers:
    """All producers of one partition."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def items(self) -> list[tuple[int, Producer]]:
        return list(self._by_id.items())

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._by_id

    def is_empty(self, producer_id: int) -> bool:
        """Whether no batch of this producer is known; its epoch may be."""
        producer = self._by_id.get(producer_id)
        return producer is None or not producer.batches

    def epoch_of(self, producer_id: int) -> int | None:
        producer = self._by_id.get(producer_id)
        return None if producer is None else producer.epoch

    def check(self, header: BatchHeader, now_ms: int = 0) -> SentBatch | None:
        """The original when `header` repeats a batch; None when it may be appended; raises otherwise."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} epoch {header.producer_epoch}, newest is {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} opens epoch {header.producer_epoch} with {header.base_sequence}"
                )
            return None
        if not producer.batches:
            if producer.begins_at_zero and header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence}, expected 0"
                )
            return None
        last_sequence = _add(header.base_sequence, header.last_offset_delta)
        for sent in producer.batches:
            if sent.base_sequence == header.base_sequence and sent.last_sequence == last_sequence:
                # Who repeats a batch is not silent: forgotten now, its next repetition would be written.
                producer.seen_ms = max(producer.seen_ms, now_ms)
                return sent
        expected = _add(producer.batches[-1].last_sequence, 1)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {expected}"
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """What a coordinator writes for a fenced producer is refused like its batches."""
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise ProducerFenced(f"producer {producer_id} epoch {epoch}, newest is {producer.epoch}")

    def check_coordinator(self, producer_id: int, coordinator_epoch: int) -> None:
        """A transaction marker of a former coordinator is refused."""
        producer = self._by_id.get(producer_id)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            raise StaleEpoch(
                f"marker of producer {producer_id} from coordinator epoch {coordinator_epoch}, "
                f"newest is {producer.coordinator_epoch}"
            )

    def note(self, header: BatchHeader, base_offset: int, now_ms: int = 0) -> None:
        """`header` was appended at `base_offset`; without `now_ms` when it is read back from the log."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch)
            producer.begins_at_zero = header.is_control
        elif header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
            producer.begins_at_zero = header.is_control
        producer.last_timestamp_ms = header.max_timestamp_ms
        producer.seen_ms = now_ms
        if header.is_control:
            return
        producer.begins_at_zero = False
        delta = header.last_offset_delta
        producer.batches.append(
            SentBatch(header.base_sequence, _add(header.base_sequence, delta), base_offset, base_offset + delta + 1)
        )

    def note_marker(self, producer_id: int, coordinator_epoch: int) -> None:
        """The marker just noted was written by that life of the coordinator."""
        self._by_id[producer_id].coordinator_epoch = coordinator_epoch

    def expire(self, *, now_ms: int, silent_ms: int, keep: frozenset[int]) -> int:
        """Forget producers silent for `silent_ms`, unless a transaction of theirs is open."""
        old = []
        for producer_id, producer in self._by_id.items():
            if not producer.seen_ms:
                # From an earlier life of this log: it may have written the moment before that ended.
                producer.seen_ms = now_ms
            elif producer.seen_ms < now_ms - silent_ms and producer_id not in keep:
                old.append(producer_id)
        for producer_id in old:
            del self._by_id[producer_id]
        return len(old)

    def snapshot(self) -> list[ProducerSnapshot]:
        return [
            ProducerSnapshot(
                producer_id,
                producer.epoch,
                producer.last_timestamp_ms,
                [(sent[0], sent[1], sent[2], sent[3]) for sent in producer.batches],
                producer.coordinator_epoch,
                producer.seen_ms,
                producer.begins_at_zero,
            )
            for producer_id, producer in self._by_id.items()
        ]

    def restore(self, snapshots: list[ProducerSnapshot]) -> None:
        for snapshot in snapshots:
            producer = self._by_id[snapshot.producer_id] = Producer(snapshot.epoch)
            producer.last_timestamp_ms = snapshot.last_timestamp_ms
            producer.coordinator_epoch = snapshot.coordinator_epoch
            producer.seen_ms = snapshot.seen_ms
            producer.begins_at_zero = snapshot.begins_at_zero
            producer.batches.extend(SentBatch(*sent) for sent in snapshot.batches)


def still_stored(
    snapshots: Iterable[ProducerSnapshot], end_offset: int, base_offsets: Container[int] = ()
) -> list[ProducerSnapshot]:
    """What is known of producers once the log has only the batches below `end_offset`, and those at `base_offsets`.

    A repetition of what was lost is news: it must be stored, not taken for a duplicate. Epochs stay, so that who was fenced
    stays fenced.
    """
    return [
        msgspec.structs.replace(
            each, batches=[sent for sent in each.batches if sent[3] <= end_offset or sent[2] in base_offsets]
        )
        for each in snapshots
    ]


def merged(older: Iterable[ProducerSnapshot], newer: Iterable[ProducerSnapshot]) -> list[ProducerSnapshot]:
    """What two accounts of one partition know together, the newer one of what came behind, or of the same."""
    known = {each.producer_id: each for each in older}
    for each in newer:
        before = known.get(each.producer_id)
        known[each.producer_id] = each if before is None else _joined(before, each)
    return list(known.values())


def _joined(older: ProducerSnapshot, newer: ProducerSnapshot) -> ProducerSnapshot:
    current = newer if newer.epoch >= older.epoch else older
    batches = {
        sent[2]: sent for account in (older, newer) if account.epoch == current.epoch for sent in account.batches
    }
    return msgspec.structs.replace(
        current,
        batches=[batches[offset] for offset in sorted(batches)][-PRODUCER_BATCHES_KEPT:],
        coordinator_epoch=max(older.coordinator_epoch, newer.coordinator_epoch),
        seen_ms=max(older.seen_ms, newer.seen_ms),
    )


def _add(sequence: int, delta: int) -> int:
    return (sequence + delta) % _SEQUENCE_SPACE
