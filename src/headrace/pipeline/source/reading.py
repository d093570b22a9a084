"""Reading a task's ranges on an executor: bytes to the decoder, a window at a time.

A window of a large object is fetched while the one before it is decoded. An object that is missing was replaced by
compaction or deleted by retention since the plan was made: the newest inventory says which, and reading goes on there.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from headrace.errors import CorruptBatch, Corrupted, OffsetOutOfRange, TimedOut
from headrace.pipeline.decoder import AbortedTransaction, Columns, Inflated, Isolation, decode
from headrace.pipeline.source.bucket import Bucket, BucketAddress, ObjectMissing
from headrace.pipeline.source.errors import DataLost, TopicRecreated
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.planning import ObjectRead, TailRead, Task
from headrace.pipeline.source.security import BrokerSecurity
from headrace.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, Buffer, batch_size_at, read_header
from headrace.tier.format.plan import ObjectRange, plan

if TYPE_CHECKING:
    from headrace.pipeline.source.broker import BrokerClient

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Fetched at a time: large enough for an object store's throughput, small enough to hold two."""
REPLANS_MAX: Final = 5
EMPTY_FETCHES_MAX: Final = 120
"""Fetches of half a second each that may find nothing below an end that the broker itself named."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an executor needs to know besides its task."""

    brokers: tuple[tuple[str, int], ...]
    security: BrokerSecurity = BrokerSecurity()
    bucket: BucketAddress | None
    isolation: Isolation
    is_loss_fatal: bool


class TaskReader:
    """Reads one task; close it when done."""

    def __init__(self, settings: ReadSettings, columns: Columns) -> None:
        self._settings = settings
        self._columns = columns
        self._inflated = Inflated()
        self._bucket = Bucket(settings.bucket) if settings.bucket is not None else None
        self._client = _connect(settings) if settings.brokers else None

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="window") as prefetcher:
            for read in task:
                if isinstance(read, ObjectRead):
                    yield from self._read_object(read, prefetcher)
                else:
                    yield from self._read_tail(read)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _read_object(self, read: ObjectRead, prefetcher: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        assert self._bucket is not None, "an object is only planned where there is a bucket"
        next_offset = read.bytes.start
        try:
            for data in _windows(self._bucket, read.bytes, prefetcher):
                yield from self._decode(data, read, next_offset, read.bytes.end)
                next_offset = max(next_offset, _end_of(data))
        except ObjectMissing:
            yield from self._read_replaced(read, next_offset, prefetcher)
        except CorruptBatch as error:
            raise Corrupted(f"{read.place}, object {read.bytes.key}: {error}") from error

    def _read_replaced(
        self, read: ObjectRead, next_offset: int, prefetcher: ThreadPoolExecutor
    ) -> Iterator[pa.RecordBatch]:
        """Go on at `next_offset` in whatever objects hold the rest now."""
        assert self._bucket is not None
        for _ in range(REPLANS_MAX):
            inventory = self._bucket.refresh()
            if read.topic_id not in inventory.topics:
                _lose(self._settings, read.place, next_offset, read.bytes.end)
                return
            state = inventory.partition(read.topic_id, read.place.partition)
            if state.log_start > next_offset:
                _lose(self._settings, read.place, next_offset, min(state.log_start, read.bytes.end))
            aborted = tuple(AbortedTransaction(a.producer_id, a.first_offset, a.last_offset) for a in state.aborted)
            try:
                for part in plan(state, start=next_offset, end=read.bytes.end):
                    for data in _windows(self._bucket, part, prefetcher):
                        moved = msgspec.structs.replace(read, bytes=part, aborted=aborted)
                        yield from self._decode(data, moved, max(next_offset, part.start), part.end)
                        next_offset = max(next_offset, _end_of(data))
            except ObjectMissing:
                continue
            return
        raise TimedOut(f"{read.place}: objects kept vanishing while offset {next_offset} was looked for")

    def _read_tail(self, read: TailRead) -> Iterator[pa.RecordBatch]:
        assert self._client is not None, "a tail is only planned where there is a broker"
        is_committed = self._settings.isolation is Isolation.READ_COMMITTED
        next_offset, empty_count = read.start, 0
        while next_offset < read.end:
            try:
                fetched = self._client.fetch(read.place, read.topic_id, next_offset, is_committed=is_committed)
            except OffsetOutOfRange:
                log_start = self._client.earliest_offsets([read.place])[read.place]
                _lose(self._settings, read.place, next_offset, min(log_start, read.end))
                next_offset = max(log_start, next_offset + 1)
                continue
            except TopicRecreated:
                if self._settings.is_loss_fatal:
                    raise
                return
            end = _end_of(fetched.records)
            if end <= next_offset:
                empty_count += 1
                if empty_count > EMPTY_FETCHES_MAX:
                    raise TimedOut(f"{read.place}: nothing came at offset {next_offset}, below the end {read.end}")
                continue
            yield from self._decode(fetched.records, read, next_offset, read.end, fetched.aborted)
            next_offset, empty_count = end, 0

    def _decode(
        self,
        data: Buffer,
        read: ObjectRead | TailRead,
        first: int,
        end: int,
        aborted: tuple[AbortedTransaction, ...] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if aborted is None:
            aborted = read.aborted if isinstance(read, ObjectRead) else ()
        yield from decode(
            data,
            topic=read.place.topic,
            partition=read.place.partition,
            columns=self._columns,
            first=first,
            end=end,
            isolation=self._settings.isolation,
            aborted=aborted,
            inflated=self._inflated,
        )


def _connect(settings: ReadSettings) -> "BrokerClient":
    # Kafka's messages take long to import, and who reads a bucket alone has no use for them.
    from headrace.pipeline.source.broker import BrokerClient

    return BrokerClient(settings.brokers, security=settings.security)


def _windows(bucket: Bucket, wanted: ObjectRange, prefetcher: ThreadPoolExecutor) -> Iterator[Buffer]:
    """The range's batches, whole, some mebibytes at a time; the next window is on its way meanwhile."""
    position, stop = wanted.position, wanted.position + wanted.length

    def fetch(at: int) -> "Future[memoryview]":
        return prefetcher.submit(bucket.read, wanted.key, at, min(WINDOW_BYTES, stop - at))

    pending = fetch(position) if position < stop else None
    rest = b""
    while pending is not None:
        window = pending.result()
        position += len(window)
        pending = fetch(position) if position < stop else None
        data: Buffer = memoryview(rest + bytes(window)) if rest else window
        border = _last_border(data)
        rest = bytes(data[border:])
        if border:
            yield data[:border]
    if rest:
        raise Corrupted(f"{wanted.key}: the last {len(rest)} bytes before {stop} are no whole batch")


def _last_border(data: Buffer) -> int:
    """Where the last whole batch ends."""
    position, available = 0, len(data)
    while available - position >= LENGTH_OVERHEAD:
        size = batch_size_at(data, position)
        if size < 0:
            raise Corrupted(f"no batch {available - position} bytes before the end of a window")
        if position + size > available:
            break
        position += size
    return position


def _end_of(data: Buffer) -> int:
    """The offset behind the last whole batch, or -1 when there is none."""
    position = 0
    end = -1
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.size < HEADER_SIZE or position + header.size > len(data):
            break
        end = header.end_offset
        position += header.size
    return end


def _lose(settings: ReadSettings, place: TopicPartition, start: int, end: int) -> None:
    if settings.is_loss_fatal:
        raise DataLost(f"{place}: offsets {start} to {end} were deleted while the query ran")
