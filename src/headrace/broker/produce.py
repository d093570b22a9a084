"""Produce: append batches, wait until they are kept, tell whoever asked.

A record is acknowledged only when its topic's durability condition holds; acks=1 and acks=all wait for the same. One
`Acknowledgement` gathers all partitions of a request, so a request of a thousand partitions waits once per flush.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from headrace.broker.deferred import Deferred
from headrace.broker.ownership import check_client_may
from headrace.broker.transactions.first_batches import FirstBatches
from headrace.clock import Clock
from headrace.errors import HeadraceError, Overloaded
from headrace.log.inspection import Verdict as Verdict
from headrace.log.partition import Appended as Appended
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.records.batch import BatchHeader, Buffer, is_transactional, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord


class Acks(Enum):
    NONE = "none"
    """Nobody waits and nobody is told."""
    LEADER = "leader"
    ALL = "all"


class Acknowledgement:
    """Waits for every append of one request. `then` is called once, with the first failure or None."""

    __slots__ = ("_callback", "_error", "_pending")

    def __init__(self) -> None:
        self._pending = 0
        self._error: HeadraceError | None = None
        self._callback: Callable[[HeadraceError | None], None] | None = None

    def expect_one(self) -> None:
        """Something has promised to `settle` this once more."""
        self._pending += 1

    def settle(self, error: HeadraceError | None) -> None:
        self._pending -= 1
        self._error = self._error or error
        if not self._pending and self._callback is not None:
            callback, self._callback = self._callback, None
            callback(self._error)

    def then(self, callback: Callable[[HeadraceError | None], None]) -> None:
        """Everything has been expected; call back when all of it is settled."""
        if self._pending:
            self._callback = callback
        else:
            callback(self._error)


class Produce:
    __slots__ = (
        "__dict__",
        "__weakref__",
        "batches_total",
        "bytes_total",
        "records_total",
    )  # for the Kafka door's `_produce.c`

    def __init__(self, store: LogStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.batches_total = 0
        self.records_total = 0
        self.bytes_total = 0
        self.check_transaction: Callable[[PartitionLog, BatchHeader], None] | None = None
        """Asked before a transactional batch is taken; raises unless its partition is part of an open transaction."""
        self._first_batches = FirstBatches()

    def append(
        self,
        partition: PartitionLog,
        batch: Buffer,
        *,
        acks: Acks,
        ack: Acknowledgement,
        now_ms: int | None = None,
        verdict: Verdict | None = None,
        begins_at_zero: bool = False,
    ) -> Appended:
        """One client batch into one partition; raises without having changed anything.

        `verdict` is that of `PartitionLog.inspect`, where the caller has asked for one. With `begins_at_zero` the first batch of a
        transaction has sequence 0, as each transaction has an epoch of its own: another one was overtaken by what follows it.
        """
        check_client_may("write", partition.topic_name)
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        if is_transactional(batch):
            appended = self._append_transactional(partition, batch, now_ms, verdict, begins_at_zero)
        else:
            appended = partition.append(batch, now_ms=now_ms, verdict=verdict)
        self.batches_total += 1
        self.records_total += appended.end_offset - appended.base_offset
        self.bytes_total += len(batch)
        if acks is not Acks.NONE and partition.wait(appended.end_offset, ack):
            ack.expect_one()
        return appended

    def _append_transactional(
        self, partition: PartitionLog, batch: Buffer, now_ms: int, verdict: Verdict | None, begins_at_zero: bool
    ) -> Appended:
        header = read_header(batch)
        sequence_max = self._first_batches.sequence_max(partition, header, begins_at_zero=begins_at_zero)
        try:
            if self.check_transaction is not None:
                self.check_transaction(partition, header)
            appended = partition.append(batch, now_ms=now_ms, verdict=verdict, sequence_max=sequence_max)
        except HeadraceError:
            self._first_batches.note_refused(partition, header, begins_at_zero=begins_at_zero)
            raise
        self._first_batches.note_taken(partition, header)
        return appended

    def note_not_added(self, partition: PartitionLog, batch: Buffer) -> None:
        """`batch` was refused because its partition could not be added to the transaction."""
        self._first_batches.note_refused(partition, read_header(batch), begins_at_zero=True)

    def append_records(
        self, partition: PartitionLog, records: Sequence[NewRecord], *, acks: Acks = Acks.ALL
    ) -> Deferred[Appended]:
        """Records of a JSON door, as one batch. With `Acks.NONE` the answer does not wait."""
        check_client_may("write", partition.topic_name)
        return self._append_records(partition, records, acks)

    def append_internal(self, partition: PartitionLog, records: Sequence[NewRecord]) -> Deferred[Appended]:
        """Records of the coordinator that the topic belongs to, as one batch."""
        return self._append_records(partition, records, Acks.ALL)

    def _append_records(self, partition: PartitionLog, records: Sequence[NewRecord], acks: Acks) -> Deferred[Appended]:
        now_ms = self._clock.now_ms()
        batch = build_batch(records, now_ms=now_ms)
        if not self._store.can_take(len(batch)):
            raise Overloaded("the log is full; try again")
        return self._append(lambda: partition.append(batch, now_ms=now_ms), partition, batch, acks)

    def append_built(self, partition: PartitionLog, batch: bytearray, *, acks: Acks = Acks.ALL) -> Deferred[Appended]:
        """A batch of a JSON door's records, for a caller who has asked `can_take`."""
        check_client_may("write", partition.topic_name)
        now_ms = self._clock.now_ms()
        return self._append(lambda: partition.append(batch, now_ms=now_ms), partition, batch, acks)

    def append_marker(self, partition: PartitionLog, marker: Buffer) -> Deferred[Appended]:
        """A control batch of a transaction; taken also when the log has no room for producers."""
        now_ms = self._clock.now_ms()
        self._first_batches.note_taken(partition, read_header(marker))
        return self._append(lambda: partition.append_control(marker, now_ms=now_ms), partition, marker, Acks.ALL)

    def _append(
        self, append: Callable[[], Appended], partition: PartitionLog, batch: Buffer, acks: Acks
    ) -> Deferred[Appended]:
        appended = append()
        self.batches_total += 1
        self.records_total += appended.end_offset - appended.base_offset
        self.bytes_total += len(batch)
        deferred: Deferred[Appended] = Deferred()
        if acks is Acks.NONE:
            deferred.resolve(appended)
            return deferred
        ack = Acknowledgement()
        if partition.wait(appended.end_offset, ack):
            ack.expect_one()
        ack.then(lambda error: deferred.resolve(appended) if error is None else deferred.reject(error))
        return deferred

    def can_take(self, size: int) -> bool:
        """Whether a request with `size` bytes of batches may come in now; otherwise pause it and use `when_room`."""
        return self._store.can_take(size)

    def when_room(self, callback: Callable[[], None]) -> None:
        self._store.when_room(callback)

    def forget_room(self, callback: Callable[[], None]) -> None:
        self._store.forget_room(callback)

    def after_flush(self, callback: Callable[[], None]) -> None:
        """Call back whenever appends have become durable, once those who waited for them have been told."""
        self._store.after_flush.append(callback)

    def now_ms(self) -> int:
        return self._clock.now_ms()
