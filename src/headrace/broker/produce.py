"""Produce: append batches, wait until they are kept, tell whoever asked.

A record is acknowledged only when its topic's durability condition holds; acks=1 and acks=all wait for the same. One
`Acknowledgement` gathers all partitions of a request, so a request of a thousand partitions waits once per flush.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from headrace.broker.deferred import Deferred
from headrace.broker.ownership import check_client_may
from headrace.broker.transactions.first_batches import FirstBatches
from headrace.broker.transforming import Transforming
from headrace.clock import Clock
from headrace.errors import HeadraceError
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
        self.on_marker: Callable[[PartitionLog, int], None] | None = None
        """Told when the marker of a producer's transaction is being written to a partition."""
        self._first_batches = FirstBatches()
        self.transforming: Transforming | None = None
        """The way of batches whose topic has a Wasm module. Without one the log refuses them."""

    def is_transformed(self, partition: PartitionLog) -> bool:
        """Whether batches for `partition` go by `append_transformed` now."""
        return self.transforming is not None and self.transforming.concerns(partition)

    @property
    def is_transforming(self) -> bool:
        """Whether any batch waits for a Wasm module, or is in one."""
        return self.transforming is not None and self.transforming.is_busy

    def has_transform_room(self, partition: PartitionLog) -> bool:
        return self.transforming is None or self.transforming.has_room(partition)

    def append_transformed(
        self, partition: PartitionLog, batch: bytes, *, begins_at_zero: bool = False
    ) -> Deferred[Appended]:
        """As `append`, through the topic's module and behind all that came before; resolves when it is in the log.

        Who waits for more asks the partition to `wait`. Nothing is in the log where it is rejected.
        """
        check_client_may("write", partition.topic_name)
        assert self.transforming is not None
        in_transaction = is_transactional(batch)

        def append(made: bytes, module_id: str, verdict: Verdict | None) -> Appended:
            now_ms = self._clock.now_ms()
            take = _taking(partition, made, now_ms=now_ms, module_id=module_id, verdict=verdict)
            if in_transaction:
                appended = self._append_transactional(partition, read_header(made), take, begins_at_zero)
            else:
                appended = take(None)
            self._count(appended, made)
            return appended

        def refused() -> None:
            if in_transaction:
                self._first_batches.note_refused(partition, read_header(batch), begins_at_zero=begins_at_zero)

        return self.transforming.submit(partition, batch, append, refused=refused)

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
            take = _taking(partition, batch, now_ms=now_ms, module_id="", verdict=verdict)
            appended = self._append_transactional(partition, read_header(batch), take, begins_at_zero)
        else:
            appended = partition.append(batch, now_ms=now_ms, verdict=verdict)
        self._count(appended, batch)
        if acks is not Acks.NONE and partition.wait(appended.end_offset, ack):
            ack.expect_one()
        return appended

    def _count(self, appended: Appended, batch: Buffer) -> None:
        self.batches_total += 1
        self.records_total += appended.end_offset - appended.base_offset
        self.bytes_total += len(batch)

    def _append_transactional(
        self, partition: PartitionLog, header: BatchHeader, take: "_Take", begins_at_zero: bool
    ) -> Appended:
        sequence_max = self._first_batches.sequence_max(partition, header, begins_at_zero=begins_at_zero)
        try:
            if self.check_transaction is not None:
                self.check_transaction(partition, header)
            appended = take(sequence_max)
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
        self._store.require_room(len(batch))
        return self._append_whole(partition, batch, now_ms, acks)

    def append_built(self, partition: PartitionLog, batch: bytearray, *, acks: Acks = Acks.ALL) -> Deferred[Appended]:
        """A batch of a JSON door's records, for a caller who has asked `can_take`."""
        check_client_may("write", partition.topic_name)
        return self._append_whole(partition, batch, self._clock.now_ms(), acks)

    def _append_whole(self, partition: PartitionLog, batch: bytearray, now_ms: int, acks: Acks) -> Deferred[Appended]:
        if not self.is_transformed(partition):
            return self._append(lambda: partition.append(batch, now_ms=now_ms), partition, batch, acks)
        answer: Deferred[Appended] = Deferred()

        def landed(outcome: Deferred[Appended]) -> None:
            try:
                self._resolve_when_kept(partition, outcome.result(), acks, answer)
            except HeadraceError as error:
                answer.reject(error)

        self.append_transformed(partition, bytes(batch)).then(landed)
        return answer

    def append_marker(self, partition: PartitionLog, marker: Buffer) -> Deferred[Appended]:
        """A control batch of a transaction; taken also when the log has no room for producers."""
        now_ms = self._clock.now_ms()
        header = read_header(marker)
        self._first_batches.note_taken(partition, header)
        if header.is_control and self.on_marker is not None:
            self.on_marker(partition, header.producer_id)
        return self._append(lambda: partition.append_control(marker, now_ms=now_ms), partition, marker, Acks.ALL)

    def _append(
        self, append: Callable[[], Appended], partition: PartitionLog, batch: Buffer, acks: Acks
    ) -> Deferred[Appended]:
        appended = append()
        self._count(appended, batch)
        deferred: Deferred[Appended] = Deferred()
        self._resolve_when_kept(partition, appended, acks, deferred)
        return deferred

    def _resolve_when_kept(
        self, partition: PartitionLog, appended: Appended, acks: Acks, deferred: Deferred[Appended]
    ) -> None:
        if acks is Acks.NONE:
            deferred.resolve(appended)
            return
        ack = Acknowledgement()
        if partition.wait(appended.end_offset, ack):
            ack.expect_one()
        ack.then(lambda error: deferred.resolve(appended) if error is None else deferred.reject(error))

    def can_take(self, size: int) -> bool:
        """Whether a request with `size` bytes of batches may come in now; otherwise pause it and use `when_room`."""
        return self._store.can_take(size)

    def require_room(self, size: int) -> None:
        """For whoever does not pause: raise `Overloaded` unless `can_take`, and have room made."""
        self._store.require_room(size)

    def when_room(self, callback: Callable[[], None]) -> None:
        self._store.when_room(callback)

    def forget_room(self, callback: Callable[[], None]) -> None:
        self._store.forget_room(callback)

    def after_flush(self, callback: Callable[[], None]) -> None:
        """Call back whenever appends have become durable, once those who waited for them have been told."""
        self._store.after_flush.append(callback)

    def now_ms(self) -> int:
        return self._clock.now_ms()


_Take = Callable[[int | None], Appended]
"""Takes a batch into its log, unless its sequence is above the one given."""


def _taking(partition: PartitionLog, batch: Buffer, *, now_ms: int, module_id: str, verdict: Verdict | None) -> _Take:
    if module_id:
        return lambda sequence_max: partition.append_transformed(
            batch, made_by=module_id, now_ms=now_ms, sequence_max=sequence_max
        )
    return lambda sequence_max: partition.append(batch, now_ms=now_ms, verdict=verdict, sequence_max=sequence_max)
