"""One partition: assigns offsets, keeps the hot tail, and knows how far it is durable, readable and uploaded.

Offsets, in the order they hold: `log_start <= uploaded_end`, `high_watermark <= durable_end <= end_offset`. All ends
are exclusive. Records below `high_watermark` may be read; it moves only when the topic's durability condition holds.

Everything here runs on the event loop and never blocks. Reads that memory cannot serve are `cold`: they are awaited,
from the WAL or from `RemoteSegments`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import (
    Concurrent,
    HeadraceError,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    TooLarge,
)
from headrace.log import cold_reads, times
from headrace.log.common_append import append_common
from headrace.log.epochs import EpochStart, end_of_earlier, epoch_at
from headrace.log.exposure import exposed_from
from headrace.log.inspection import Inspection, Verdict
from headrace.log.policy import Durability, TopicPolicy, plain_size_max
from headrace.log.producers import Producers
from headrace.log.readers import FetchWaiter, UploadRead
from headrace.log.tail import Tail, TailRead
from headrace.log.transactions import AbortedTransaction, TransactionIndex
from headrace.log.wal.format import entry_head
from headrace.log.wal.writer import Waiter
from headrace.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER,
    BatchHeader,
    Buffer,
    Piece,
    bytes_of,
    check_batch,
    check_timestamp,
    read_header,
    stamp,
    stamp_append_time,
)
from headrace.records.builder import coordinator_epoch_of, is_commit_marker
from headrace.records.record import read_batch_records
from headrace.records.walk import check_records

if TYPE_CHECKING:
    from headrace.log.store import LogStore


class Appended(NamedTuple):
    """Where a batch went. A duplicate gets the place of its original."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """-1 unless the topic stamps the broker's time."""
    is_duplicate: bool


class PartitionLog:
    __slots__ = (
        "_commit_waiters",
        "_entry_head",
        "_store",
        "_waiters",
        "ceiling",
        "durable_end",
        "end_offset",
        "epoch_starts",
        "high_watermark",
        "index",
        "is_closing",
        "leader_epoch",
        "log_start",
        "plain_size_max",
        "policy",
        "producers",
        "removed",
        "tail",
        "topic_id",
        "topic_name",
        "transactions",
        "uploaded_end",
        "wal_end",
    )

    def __init__(
        self,
        store: LogStore,
        *,
        topic_id: bytes,
        topic_name: str,
        index: int,
        leader_epoch: int,
        policy: TopicPolicy,
        log_start: int = 0,
        wal_end: int = 0,
        ceiling: int,
    ) -> None:
        self._store = store
        self._entry_head = entry_head(topic_id, index)
        self.tail = Tail(store.memory)
        self._waiters: list[FetchWaiter] | None = None
        self._commit_waiters: list[tuple[int, Waiter]] | None = None
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.index = index
        self.leader_epoch = leader_epoch
        self.policy = policy
        self.log_start = log_start
        self.uploaded_end = log_start
        """Records below are in object storage and committed there."""
        self.high_watermark = log_start
        self.durable_end = log_start
        self.end_offset = log_start
        self.wal_end = wal_end
        """Records below are readable once the WAL has them, though the topic demands more by now. Persisted with the switch."""
        self.ceiling = ceiling
        """Offsets are assigned below this only; it is persisted before it is used, so a lost disk reuses none."""
        self.epoch_starts: list[EpochStart] = []
        self.producers: Producers | None = None
        self.transactions: TransactionIndex | None = None
        self.removed = False
        self.is_closing = False
        """It is about to be led elsewhere: it takes no more records, and gives those it has."""
        self.plain_size_max = 0
        """A batch up to this size may take the fast append; 0 when none may. Made by `_judge_plain` alone."""
        self._judge_plain()

    # -- writing -------------------------------------------------------------------------------------------------

    def append(
        self, batch: Buffer, *, now_ms: int, verdict: Verdict | None = None, sequence_max: int | None = None
    ) -> Appended:
        """Check a client's batch, give it offsets, copy it once into the arena and queue it for the WAL.

        With a `verdict` somebody has looked at its records already: see `needs_inspection`. A transactional batch above
        `sequence_max` is out of order, though its producer may be unknown here.
        Nothing has changed when this raises. Acknowledge only through `wait`.
        """
        base_offset = append_common(self, batch, now_ms, None)
        if base_offset is not None:
            return Appended(base_offset, self.end_offset, -1, False)
        return self._append_any(batch, now_ms, verdict, sequence_max)

    def needs_inspection(self, batch: Buffer) -> bool:
        """Whether an append would have to decompress `batch`: `inspect` it first, that may take long."""
        policy = self.policy
        if not policy.is_compacted or policy.wasm_module_id:
            return False  # What goes through a module is looked at there.
        return len(batch) >= HEADER_SIZE and bool(read_header(batch).codec)

    async def inspect(self, batch: Buffer) -> Verdict:
        """Look at its records beside the loop."""
        try:
            header = check_batch(batch, size_max=self.policy.message_bytes_max)
            await self.inspection.of(batch, partial(check_records, header=header, keys_needed=True))
        except HeadraceError as error:
            return Verdict(error)
        return Verdict(None)

    @property
    def inspection(self) -> Inspection:
        return self._store.inspection

    def _judge_plain(self) -> None:
        """Whether the fast append may take batches. Call this wherever something changes that decides what `_append_any`
        or `wait` do, whatever the batch: that is all the fast append knows of it."""
        is_special = self.removed or self.is_closing or self._commit_waiters is not None
        self.plain_size_max = 0 if is_special else plain_size_max(self.policy)

    def _append_any(
        self, batch: Buffer, now_ms: int, verdict: Verdict | None = None, sequence_max: int | None = None
    ) -> Appended:
        """Every case, the common one too."""
        policy = self.policy
        if policy.wasm_module_id:
            raise Concurrent(f"{self.topic_name} has the Wasm module {policy.wasm_module_id}: send the batch again")
        header = check_batch(batch, size_max=policy.message_bytes_max)
        if header.max_timestamp_ms - now_ms > policy.timestamp_after_ms or policy.timestamp_before_ms != 2**63 - 1:
            self._check_timestamp(header, now_ms)
        if verdict is not None:
            if verdict.error is not None:
                raise verdict.error
        elif policy.is_compacted or not header.codec:
            check_records(batch, header, keys_needed=policy.is_compacted)
        return self._append_sound(batch, header, now_ms, sequence_max)

    def append_transformed(
        self, batch: Buffer, *, made_by: str, now_ms: int, sequence_max: int | None = None
    ) -> Appended:
        """A batch that the Wasm module `made_by` has made of a client's. Its records are sound, and some may be missing.

        Raises `Concurrent` when the topic has another module by now: nothing that the wrong one made gets in.
        """
        policy = self.policy
        if made_by != policy.wasm_module_id:
            raise Concurrent(f"{self.topic_name} has the Wasm module {policy.wasm_module_id or 'none'} by now")
        if len(batch) > policy.message_bytes_max:
            raise TooLarge(f"module {made_by} made a batch of {len(batch)} bytes, limit {policy.message_bytes_max}")
        header = read_header(batch)
        if header.record_count:
            self._check_timestamp(header, now_ms)
        return self._append_sound(batch, header, now_ms, sequence_max)

    def find_repeated(self, header: BatchHeader, now_ms: int) -> Appended | None:
        """Where this batch went when it was sent before; None where it is news. Raises when its producer may not send it."""
        if header.producer_id == NO_PRODUCER or self.producers is None:
            return None
        original = self.producers.check(header, now_ms)
        return None if original is None else Appended(original.base_offset, original.end_offset, -1, True)

    def _append_sound(self, batch: Buffer, header: BatchHeader, now_ms: int, sequence_max: int | None) -> Appended:
        """What has been looked at but for its producer."""
        if header.producer_id != NO_PRODUCER:
            is_known = self.producers is not None and header.producer_id in self.producers
            if self.producers is not None and is_known:
                original = self.producers.check(header, now_ms)
                if original is not None:
                    return Appended(original.base_offset, original.end_offset, -1, True)
            if sequence_max is not None and header.base_sequence > sequence_max:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {sequence_max}"
                )
            if not is_known:
                self._store.producer_budget.admit(self, now_ms)
        return self._take(batch, header, now_ms)

    def _check_timestamp(self, header: BatchHeader, now_ms: int) -> None:
        policy = self.policy
        if not policy.uses_append_time:  # Else the client's time does not matter: ours replaces it.
            check_timestamp(
                header, now_ms=now_ms, before_ms=policy.timestamp_before_ms, after_ms=policy.timestamp_after_ms
            )

    def append_control(self, marker: Buffer, *, now_ms: int) -> Appended:
        """A batch of this broker's own: a transaction marker, offsets in a transaction, a span of lost offsets.

        `StaleEpoch`: a newer coordinator has written a marker here already.
        """
        header = read_header(marker)
        if self.producers is not None and header.producer_id != NO_PRODUCER:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
            if header.is_control:
                value = next(read_batch_records(marker, header)).value or b""
                self.producers.check_coordinator(header.producer_id, coordinator_epoch_of(value))
        return self._take(marker, header, now_ms)

    def _take(self, batch: Buffer, header: BatchHeader, now_ms: int) -> Appended:
        base_offset = self.end_offset
        end_offset = base_offset + header.last_offset_delta + 1
        if self.removed or self.is_closing:
            raise NotLeader(f"{self.topic_name}-{self.index} is gone, or about to be")
        if end_offset > self.ceiling:
            self._store.raise_ceiling(self)
            raise Overloaded(f"{self.topic_name}-{self.index} waits for its offset ceiling to be raised")
        last_chunk = self.tail.last_chunk
        view = self.tail.place(batch)
        stamp(view, base_offset, self.leader_epoch)
        append_time = -1
        max_timestamp = header.max_timestamp_ms
        if self.policy.uses_append_time and header.record_count:
            stamp_append_time(view, now_ms)
            append_time = max_timestamp = now_ms
        lsn = self._store.wal.append(
            self,
            self._entry_head,
            view,
            base_offset=base_offset,
            end_offset=end_offset,
            leader_epoch=self.leader_epoch,
        )
        self.tail.add(base_offset, end_offset, lsn=lsn, size=len(batch), max_timestamp_ms=max_timestamp)
        if last_chunk is not None and last_chunk is not self.tail.last_chunk:
            # Not by their number: the new one may have taken the place of an old one.
            self._store.memory.chunk_sealed(self)
        self.end_offset = end_offset
        # An empty batch over lost offsets begins no epoch: who has read those records must not be sent back.
        if header.record_count and (not self.epoch_starts or self.epoch_starts[-1].epoch != self.leader_epoch):
            self.epoch_starts.append(EpochStart(self.leader_epoch, base_offset))
        if header.producer_id != NO_PRODUCER:
            self.note_producer(header, base_offset, batch, now_ms)
        if end_offset + self._store.ceiling_margin > self.ceiling:
            self._store.raise_ceiling(self)
        return Appended(base_offset, end_offset, append_time, False)

    def append_copy(self, header: BatchHeader, batch: Buffer) -> None:
        """A batch that another WAL had, as it lies there: offsets, epoch and all. Only this WAL's disk has it afterwards, not memory.

        What it says of producers and epochs is known already.
        """
        lsn = self._store.wal.append(
            self,
            self._entry_head,
            batch,
            base_offset=header.base_offset,
            end_offset=header.end_offset,
            leader_epoch=header.leader_epoch,
        )
        self.tail.add_stored(
            header.base_offset,
            header.end_offset,
            lsn=lsn,
            size=header.size,
            max_timestamp_ms=header.max_timestamp_ms,
        )

    def note_producer(self, header: BatchHeader, base_offset: int, batch: Buffer, now_ms: int = 0) -> None:
        if self.producers is None:
            self.producers = Producers()
        self.producers.note(header, base_offset, now_ms)
        if not header.is_transactional:
            return
        if self.transactions is None:
            self.transactions = TransactionIndex()
        if header.is_control:
            marker = next(read_batch_records(batch, header))
            self.producers.note_marker(header.producer_id, coordinator_epoch_of(marker.value or b""))
            self.transactions.end(
                header.producer_id, commit=is_commit_marker(marker.key or b""), marker_offset=base_offset
            )
        else:
            self.transactions.note_batch(header.producer_id, base_offset, is_transactional=True)

    def wait(self, end_offset: int, waiter: Waiter) -> bool:
        """Settle `waiter` once records below `end_offset` are kept as the topic demands. False: they are already."""
        if self.high_watermark >= end_offset:
            return False
        if self.policy.durability is Durability.WAL and self._commit_waiters is None:
            return self._store.wal.wait(waiter)
        if self._store.wal.failure is not None:
            raise self._store.wal.failure
        if self._commit_waiters is None:
            self._commit_waiters = []
            self._judge_plain()
        self._commit_waiters.append((end_offset, waiter))
        self._store.upload_wanted(self)
        return True

    # -- progress ------------------------------------------------------------------------------------------------

    def durable(self, end_offset: int) -> None:
        """The WAL has everything below `end_offset` on disk."""
        self.durable_end = end_offset
        if self.policy.durability is Durability.WAL:
            self._advance(end_offset)
        elif self.wal_end > self.high_watermark:
            self._advance(min(end_offset, self.wal_end))

    def mark_uploaded(self, end_offset: int) -> None:
        """Everything below `end_offset` is committed in object storage."""
        if end_offset <= self.uploaded_end:
            return
        self.uploaded_end = end_offset
        if end_offset > self.high_watermark:
            self._advance(min(end_offset, self.durable_end))
        self.tail.prune(self.uploaded_end)

    def apply_policy(self, policy: TopicPolicy) -> None:
        """Switch to new rules. From `object` to `wal`, what is on disk becomes readable at once.

        From `wal` to `object`, what is on its way to the disk is acknowledged there still, and readable with that.
        """
        if self.policy.durability is Durability.WAL:
            self.wal_end = self.end_offset
        self.policy = policy
        self._judge_plain()
        if policy.durability is Durability.WAL and self.durable_end > self.high_watermark:
            self._advance(self.durable_end)

    def _advance(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        if self._commit_waiters is not None:
            self._settle_committed()
        waiters = self._waiters
        if waiters:
            self._waiters = None
            for waiter in waiters:
                waiter.wake(self)

    def _settle_committed(self) -> None:
        waiting = self._commit_waiters or []
        ready = [waiter for end, waiter in waiting if end <= self.high_watermark]
        self._commit_waiters = [(end, waiter) for end, waiter in waiting if end > self.high_watermark] or None
        self._judge_plain()
        for waiter in ready:
            waiter.settle(None)

    def park(self, waiter: FetchWaiter) -> None:
        """Wake `waiter` once, when there is more to read."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)

    def unpark(self, waiter: FetchWaiter) -> None:
        if self._waiters is not None and waiter in self._waiters:
            self._waiters.remove(waiter)

    @property
    def segment_count(self) -> int:
        """Segments sealed in object storage, and the open tail."""
        return 1 + self._store.remote.segment_count(self.topic_id, self.index)

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` may see."""
        if self.transactions is None:
            return self.high_watermark
        return self.transactions.last_stable_offset(self.high_watermark)

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        return self.transactions.aborted_between(start, end) if self.transactions is not None else []

    # -- reading -------------------------------------------------------------------------------------------------

    def check_offset(self, offset: int) -> None:
        if not self.log_start <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_name}-{self.index} is outside {self.log_start}..{self.end_offset}"
            )

    @property
    def memory_start(self) -> int | None:
        """From this offset on everything is in memory; None when nothing is."""
        return self.tail.memory_start

    def is_hot(self, offset: int) -> bool:
        """Whether memory holds everything from `offset` on."""
        if offset >= self.end_offset:
            return True
        return self.tail.is_hot(offset)

    def readable_bytes(self, offset: int, end_offset: int) -> int:
        """Bytes between `offset` and `end_offset`, as far as the tail knows; cold data counts as 1 GiB."""
        if offset >= end_offset:
            return 0
        index = self.tail.index
        if not len(index):
            # Above what is uploaded there is nothing but offsets that were passed over: nothing to hurry for.
            return 1 << 30 if offset < self.uploaded_end else 0
        if offset < index.offsets[0]:
            return 1 << 30
        return self.tail.bytes_between(offset, end_offset)

    def read_tail(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> TailRead:
        """From memory: the batch that holds `offset` and the ones behind it, below `end_offset`. Needs `is_hot`."""
        return self.tail.read(offset, max_bytes, end_offset, at_least_one=at_least_one)

    async def read_cold(self, offset: int, max_bytes: int, end_offset: int) -> list[Buffer]:
        """From the WAL or object storage: like `read_tail`, at least one batch, for what memory does not hold."""
        return [bytes_of(piece) for piece in await self.read_cold_pieces(offset, max_bytes, end_offset)]

    async def read_cold_pieces(self, offset: int, max_bytes: int, end_offset: int) -> list[Piece]:
        """As `read_cold`, for who only passes them on: what lies in a file stays there."""
        return await cold_reads.read_pieces(
            self, self._store, offset=offset, max_bytes=max_bytes, end_offset=end_offset
        )

    async def read_for_upload(self, offset: int, max_bytes: int, end_offset: int) -> UploadRead:
        """Durable batches from `offset` up to `end_offset`, for whoever puts them into object storage."""
        return await cold_reads.read_for_upload(
            self, self._store, offset=offset, max_bytes=max_bytes, end_offset=end_offset
        )

    # -- looking up ----------------------------------------------------------------------------------------------

    async def find_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and time of the first record at or after `timestamp_ms`, or None."""
        return await times.find_time(self, self.tail.index, self._store.remote, timestamp_ms)

    async def newest_record(self) -> tuple[int, int] | None:
        """Offset and time of the record with the greatest timestamp below the high watermark."""
        return await times.newest_record(self, self.tail.index, self._store.remote)

    def end_of_epoch(self, epoch: int) -> EpochStart | None:
        """The newest epoch not above `epoch`, and where it ends: the readable end for the current one."""
        if epoch >= self.leader_epoch:
            return EpochStart(self.leader_epoch, self.high_watermark) if epoch == self.leader_epoch else None
        return end_of_earlier(self.epoch_starts, epoch, readable_end=self.high_watermark)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`: the current one where none is yet, -1 where it is not known."""
        return self.leader_epoch if offset >= self.end_offset else epoch_at(self.epoch_starts, offset)

    @property
    def local_start(self) -> int:
        """First offset that is still on this broker."""
        index = self.tail.index
        return max(self.log_start, index.offsets[0]) if len(index) else self.end_offset

    @property
    def unuploaded_bytes(self) -> int:
        """Bytes that only this broker's disk has."""
        return self.tail.bytes_from(exposed_from(self))

    @property
    def unuploaded_since_ms(self) -> int | None:
        """Timestamp of the oldest record that only this broker's disk has."""
        index = self.tail.index
        row = index.find(exposed_from(self))
        # An empty batch over lost offsets has no time, and exposes nothing.
        return index.max_timestamps[row] if row < len(index) and index.max_timestamps[row] >= 0 else None

    @property
    def tail_bytes(self) -> int:
        return self.tail.size

    @property
    def uploaded_bytes(self) -> int:
        return self._store.remote.size_bytes(self.topic_id, self.index)

    # -- letting go ----------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are deleted. Persist it first."""
        if offset <= self.log_start:
            return
        self.log_start = offset
        self.uploaded_end = max(self.uploaded_end, offset)
        if self.transactions is not None:
            self.transactions.truncate_below(offset)
        while self.tail.drop_chunk(kept_end=min(offset, self.durable_end)):
            pass
        self.tail.prune(self.uploaded_end)

    def drop_chunk(self, *, is_uploaded_only: bool = False) -> bool:
        """Give the oldest sealed chunk back, if the disk (or object storage) has what is in it."""
        if not self.tail.drop_chunk(kept_end=self.uploaded_end if is_uploaded_only else self.durable_end):
            return False
        self.tail.prune(self.uploaded_end)
        return True

    def close(self) -> None:
        """Take no more records; those that are on their way to the disk are acknowledged still."""
        self.is_closing = True
        self._judge_plain()

    def remove(self) -> None:
        """The topic is deleted: wake everybody, free the memory, release the WAL."""
        self.removed = True
        self._judge_plain()
        self.tail.clear()
        self.fail_waiters(NotLeader(f"{self.topic_name}-{self.index} was deleted"))

    def fail_waiters(self, error: NotLeader) -> None:
        commits, self._commit_waiters = self._commit_waiters or [], None
        self._judge_plain()
        for _, waiter in commits:
            waiter.settle(error)
        parked, self._waiters = self._waiters or [], None
        for fetch in parked:
            fetch.wake(self)
