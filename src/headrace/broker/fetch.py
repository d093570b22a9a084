"""Fetch: plan a read over many partitions and, if it is short of `min_bytes`, wait once on one deadline.

Batches are passed on as they lie. What memory holds is read at once; what it does not is read by a task, a bounded
number at a time, so that catching up never holds back the tail. A parked read is woken by the append that feeds it.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from headrace.broker.decoded_batches import DecodedBatches, records_at_once
from headrace.broker.deferred import Deferred
from headrace.broker.record_windows import RECORDS_AT_ONCE, RecordWindows
from headrace.clock import Clock
from headrace.errors import HeadraceError, NotLeader, TooLarge
from headrace.file_range import FileRange
from headrace.log.partition import PartitionLog
from headrace.log.transactions import AbortedTransaction
from headrace.records.batch import BatchHeader, Buffer, Piece, batch_size_at, iterate_batches, read_header
from headrace.records.record import Record

_COLD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one answer from disk or object storage: it is held for a client that may read slowly, or never."""
_COLD_READS_MAX: Final = 8
"""Reads from disk or object storage under way at once; the rest queue, and the hot path never does."""
_RECORDLESS_READS_MAX: Final = 64
"""Reads in a row that bring no record: then the reader is told how far it got, and may go on from there."""


class Isolation(Enum):
    UNCOMMITTED = 0
    COMMITTED = 1


class ReadEnd(Enum):
    """How far a reader of single records may see."""

    HIGH_WATERMARK = "high_watermark"
    LOG_END = "log_end"
    """Replicas only: also what is not yet acknowledged."""


class ReadSpec(msgspec.Struct, gc=False):
    """From where to read one partition, and at most how much of it."""

    partition: PartitionLog
    offset: int
    max_bytes: int


class PartitionRead(msgspec.Struct):
    """What was read of one partition. `aborted` is None unless only committed records were asked for."""

    partition: PartitionLog
    slices: Sequence[Piece] = ()
    size: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    aborted: list[AbortedTransaction] | None = None
    error: HeadraceError | None = None


class RecordsRead(msgspec.Struct, frozen=True):
    """Single records, and where to go on. Without records, `next_offset` is past the batches that had none."""

    records: list[Record]
    next_offset: int


class Fetch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.cold_slots = asyncio.Semaphore(_COLD_READS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._decoded = DecodedBatches()
        self._windows = RecordWindows()
        self.parked_count = 0
        self.records_total = 0
        self.bytes_total = 0

    def read(
        self, specs: Sequence[ReadSpec], *, min_bytes: int, max_bytes: int, wait_ms: int, isolation: Isolation
    ) -> Deferred[list[PartitionRead]]:
        """One read per spec, in order. The first that has anything gives at least one whole batch (KIP-74)."""
        deferred: Deferred[list[PartitionRead]] = Deferred()
        _PendingFetch(self, deferred, specs, min_bytes, max_bytes, isolation).begin(wait_ms)
        return deferred

    def read_records(
        self,
        partition: PartitionLog,
        offset: int,
        *,
        max_bytes: int,
        max_records: int,
        below: ReadEnd = ReadEnd.HIGH_WATERMARK,
    ) -> Deferred[RecordsRead]:
        """Single records from `offset` on, for the JSON doors, which know no headers; `OffsetOutOfRange` below the start.

        `max_bytes` bounds the batches read, so a few records more or less; at least one where there is any. Batches
        without records (transaction markers, holes, what compaction left empty) are passed, however many offsets they
        span. No records and a `next_offset` below the end: many such batches, and the reader may go on behind them.
        """
        deferred: Deferred[RecordsRead] = Deferred()
        end = partition.high_watermark if below is ReadEnd.HIGH_WATERMARK else partition.end_offset
        if offset >= end:
            deferred.resolve(RecordsRead([], offset))
            return deferred
        partition.check_offset(offset)
        wanted = _Wanted(partition, end, max_bytes, max_records)
        if partition.is_hot(offset):
            found = self._pick_hot(wanted, offset)
            is_found = bool(found.records) or not offset < found.next_offset < end or max_records <= 0
            if is_found and found.heavy is None:
                deferred.resolve(self._counted(found.read))
                return deferred
            offset = found.next_offset

        async def read_on() -> None:
            deferred.resolve(self._counted(await self._read_on(wanted, offset)))

        self.run_cold(read_on(), deferred.reject)
        return deferred

    async def _read_on(self, wanted: "_Wanted", offset: int) -> RecordsRead:
        """Read by read, until one has a record, nothing is left, or many had none."""
        for _ in range(_RECORDLESS_READS_MAX):
            if wanted.partition.is_hot(offset):
                _check_readable(wanted.partition, offset)
                found = self._pick_hot(wanted, offset)
                await asyncio.sleep(0)  # Others have their turn between two reads that wait for nothing.
            else:
                async with self.cold_slots:
                    buffers = await wanted.partition.read_cold(offset, wanted.max_bytes, wanted.end_offset)
                _check_readable(wanted.partition, offset)
                found = self._pick(wanted, buffers, offset)
            if found.heavy is not None:
                return await self._read_heavy(wanted, found.heavy, found.next_offset)
            if found.records or not offset < found.next_offset < wanted.end_offset:
                return found.read
            offset = found.next_offset
        return RecordsRead([], offset)

    async def _read_heavy(self, wanted: "_Wanted", heavy: "_HeavyBatch", offset: int) -> RecordsRead:
        """Some records of a batch that holds too many for one turn of the loop."""
        window = await self._windows.read(
            wanted.partition, heavy.header, heavy.batch, start=offset, count=wanted.max_records
        )
        _check_readable(wanted.partition, offset)
        records = window.records[: bisect_left(window.records, wanted.end_offset, key=_offset_of)]
        return RecordsRead(records, min(window.next_offset, wanted.end_offset))

    def _pick_hot(self, wanted: "_Wanted", offset: int) -> "_Picked":
        hot = wanted.partition.read_tail(offset, wanted.max_bytes, wanted.end_offset, at_least_one=True)
        return self._pick(wanted, hot.slices, offset)

    def _pick(self, wanted: "_Wanted", buffers: Sequence[Buffer], offset: int) -> "_Picked":
        records: list[Record] = []
        next_offset = offset
        for buffer in buffers:
            for header, batch in iterate_batches(buffer):
                room = min(wanted.max_records, RECORDS_AT_ONCE) - len(records)
                if room <= 0 or header.base_offset >= wanted.end_offset:
                    return _Picked(records, next_offset)
                batch_end = min(header.end_offset, wanted.end_offset)
                if batch_end <= offset:
                    continue
                if header.is_control or not header.record_count:
                    next_offset = batch_end
                    continue
                if header.record_count > RECORDS_AT_ONCE:
                    # What comes before it is answered at once; the next read begins with it.
                    return _Picked(records, next_offset, None if records else _HeavyBatch(header, batch))
                # A batch read whole is not asked for again; one read in part is, by the same reader.
                is_read_whole = header.base_offset >= offset and header.record_count <= room
                try:
                    found: Sequence[Record] = (
                        records_at_once(batch, header)
                        if is_read_whole
                        else self._decoded.records_of(wanted.partition, header, batch)
                    )
                except TooLarge:
                    return _Picked(records, next_offset, None if records else _HeavyBatch(header, batch))
                except HeadraceError:
                    if next_offset > offset:
                        # What comes before it is sound; the next read begins with it, and fails.
                        return _Picked(records, next_offset)
                    raise
                start = bisect_left(found, offset, key=_offset_of)
                end = bisect_left(found, wanted.end_offset, key=_offset_of)
                records += found[start : min(end, start + room)]
                next_offset = batch_end if end - start <= room else records[-1].offset + 1
        return _Picked(records, next_offset)

    def _counted(self, read: RecordsRead) -> RecordsRead:
        self.records_total += len(read.records)
        self.bytes_total += sum(len(record.value or b"") for record in read.records)
        return read

    def run_cold(self, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None]) -> None:
        """Run `work` beside the requests; what it raises goes to `on_error`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(done: "asyncio.Task[None]") -> None:
            self._tasks.discard(done)
            if not done.cancelled() and isinstance(error := done.exception(), Exception):
                on_error(error)

        task.add_done_callback(finished)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _HeavyBatch(NamedTuple):
    """Holds more records, or more bytes, than one turn of the loop may take apart."""

    header: BatchHeader
    batch: Buffer


class _Picked(NamedTuple):
    """What was read, and the batch in front of which it stopped, where that is too heavy."""

    records: list[Record]
    next_offset: int
    heavy: _HeavyBatch | None = None

    @property
    def read(self) -> RecordsRead:
        return RecordsRead(self.records, self.next_offset)


class _Wanted(NamedTuple):
    """What a reader of single records asked for, but for the offset, which moves."""

    partition: PartitionLog
    end_offset: int
    max_bytes: int
    max_records: int


class _PendingFetch:
    """One read that may have to wait. Parked on all of its partitions at once; the first to wake it decides."""

    __slots__ = (
        "_deferred",
        "_fetch",
        "_is_abandoned",
        "_is_woken",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_specs",
        "_timer",
    )

    def __init__(
        self,
        fetch: Fetch,
        deferred: Deferred[list[PartitionRead]],
        specs: Sequence[ReadSpec],
        min_bytes: int,
        max_bytes: int,
        isolation: Isolation,
    ) -> None:
        self._fetch = fetch
        self._deferred = deferred
        self._specs = specs
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False
        self._is_abandoned = False
        deferred.on_abandoned = self._abandoned

    def begin(self, wait_ms: int) -> None:
        if wait_ms <= 0 or not self._specs or self._is_enough():
            self._complete()
            return
        for spec in self._specs:
            spec.partition.park(self)
        self._fetch.parked_count += 1
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._expired)

    def wake(self, partition: PartitionLog) -> None:
        if not self._is_woken:
            self._is_woken = True
            # At the end of this turn: the flush that woke us may have fed other partitions of ours too.
            asyncio.get_running_loop().call_soon(self._reconsider)

    def _reconsider(self) -> None:
        if self._timer is None:
            return
        self._is_woken = False
        if self._is_enough():
            self._leave()
            self._complete()
            return
        for spec in self._specs:
            spec.partition.unpark(self)
            spec.partition.park(self)

    def _expired(self) -> None:
        if self._timer is not None:
            self._leave()
            self._complete()

    def _abandoned(self) -> None:
        self._is_abandoned = True
        if self._timer is not None:
            self._leave()

    def _leave(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self._fetch.parked_count -= 1
        for spec in self._specs:
            spec.partition.unpark(self)

    def _end_of(self, partition: PartitionLog) -> int:
        if self._isolation is Isolation.COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark

    def _is_enough(self) -> bool:
        total = 0
        for spec in self._specs:
            partition = spec.partition
            if partition.removed or not partition.log_start <= spec.offset <= partition.end_offset:
                return True
            total += partition.readable_bytes(spec.offset, self._end_of(partition))
            if total >= self._min_bytes:
                return True
        return total >= self._min_bytes

    def _complete(self) -> None:
        reads: list[PartitionRead] = []
        # At least one: the first batch is returned above any limit, none at all would stop a consumer for good.
        budget = max(self._max_bytes, 1)
        is_first = True
        cold: list[tuple[PartitionRead, ReadSpec]] = []
        for spec in self._specs:
            read = self._describe(spec)
            reads.append(read)
            if read.error is not None:
                continue
            end = self._end_of(spec.partition)
            if spec.offset >= end:
                continue
            if not spec.partition.is_hot(spec.offset):
                cold.append((read, spec))
                continue
            if budget <= 0:
                continue
            found = spec.partition.read_tail(
                spec.offset, min(spec.max_bytes, budget), end, at_least_one=is_first and not cold
            )
            if found.size:
                self._fill(read, spec, found.slices, found.size, found.end_offset)
                budget -= found.size
                is_first = False
        if cold and budget > 0:
            work = self._read_cold(cold, min(budget, _COLD_BYTES_MAX), reads)
            self._fetch.run_cold(work, self._deferred.reject)
        else:
            self._deferred.resolve(reads)

    def _describe(self, spec: ReadSpec) -> PartitionRead:
        partition = spec.partition
        read = PartitionRead(
            partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start=partition.log_start,
            aborted=[] if self._isolation is Isolation.COMMITTED else None,
        )
        try:
            _check_readable(partition, spec.offset)
        except HeadraceError as error:
            read.error = error
        return read

    def _fill(self, read: PartitionRead, spec: ReadSpec, slices: Sequence[Piece], size: int, end_offset: int) -> None:
        read.slices = slices
        read.size = size
        self._fetch.bytes_total += size
        self._fetch.records_total += end_offset - spec.offset
        if self._isolation is Isolation.COMMITTED:
            read.aborted = spec.partition.aborted_between(spec.offset, end_offset)

    async def _read_cold(
        self, cold: list[tuple[PartitionRead, ReadSpec]], budget: int, reads: list[PartitionRead]
    ) -> None:
        """What memory does not hold, in request order, while the budget lasts: as many at once as surely fit in it."""
        waiting = deque(cold)
        while waiting and budget > 0 and not self._is_abandoned:
            promised = 0
            together: list[Coroutine[Any, Any, int]] = []
            while waiting and (not together or promised + waiting[0][1].max_bytes <= budget):
                read, spec = waiting.popleft()
                limit = min(spec.max_bytes, budget)
                promised += limit
                together.append(self._read_cold_partition(read, spec, limit))
            budget -= sum(await asyncio.gather(*together))
        if not self._is_abandoned:
            self._deferred.resolve(reads)

    async def _read_cold_partition(self, read: PartitionRead, spec: ReadSpec, limit: int) -> int:
        """Bytes found; what went wrong stands in `read`."""
        end = self._end_of(spec.partition)
        try:
            async with self._fetch.cold_slots:
                if self._is_abandoned:
                    return 0
                pieces = await spec.partition.read_cold_pieces(spec.offset, limit, end)
            # Which transactions were aborted is forgotten with the records that are deleted.
            _check_readable(spec.partition, spec.offset)
        except HeadraceError as error:
            read.error = error
            read.log_start = spec.partition.log_start
            return 0
        size = sum(map(len, pieces))
        if size:
            self._fill(read, spec, pieces, size, min(end, _end_of_pieces(pieces)))
        return size


def _check_readable(partition: PartitionLog, offset: int) -> None:
    """Before a read, and again when it was awaited: the topic may be gone by then, or its records deleted."""
    if partition.removed:
        raise NotLeader(f"{partition.topic_name}-{partition.index} is gone")
    partition.check_offset(offset)


def _end_of_pieces(pieces: Sequence[Piece]) -> int:
    """Offset after the last batch: a cold read may stop well before the end it was given."""
    last = pieces[-1]
    if isinstance(last, FileRange):
        return last.end_offset
    position = following = 0
    while (size := batch_size_at(last, following)) > 0 and following + size <= len(last):
        position, following = following, following + size
    return read_header(last, position).end_offset


def _offset_of(record: Record) -> int:
    return record.offset
