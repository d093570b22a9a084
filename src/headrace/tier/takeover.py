"""What a partition's former leaders knew of its producers and transactions, for the broker that leads it next.

The newest state that one of them saved is true up to some offset. What came behind it is told by the rows that objects have of
each run (`format.run_state`), or, where there are none, by the run's batches.

Partitions are opened some at a time, beside each other. Whatever one adoption has asked for serves all that are under way with it: each state
and each object is asked once, whatever number of partitions are in it.

What cannot be read any more is passed over, with an error in the log: a partition that is not led at all helps nobody.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from headrace.blob.store import BlobStore
from headrace.errors import Corrupted, ObjectNotFound, StoreUnavailable
from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers, ProducerSnapshot, SentBatch, merged, still_stored
from headrace.log.transactions import OpenTransaction, TransactionIndex, TransactionSnapshot
from headrace.records.batch import Buffer
from headrace.telemetry.logging import get_logger
from headrace.tier.format.object import Run, check_run, decode_footer, decode_run_states, footer_size
from headrace.tier.format.run_state import BEGUN, COMMITTED, ProducerRow, RunState, SentRow, state_of
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable
from headrace.tier.states import BrokerStates

_END_BYTES: Final = 64 * 1024
"""Of an object that are asked for at first: the footers of all but the largest, and all of most that were just committed."""
_GETS_AT_ONCE: Final = 16
_SEQUENCE_SPACE: Final = 1 << 31

T = TypeVar("T")

log = get_logger(__name__)


class Takeover:
    def __init__(self, blobs: BlobStore, table: SegmentTable, states: BrokerStates) -> None:
        self._blobs = blobs
        self._table = table
        self._states = states
        self._under_way = 0
        self._wave = _Wave()

    async def adopt(self, partitions: Sequence[PartitionLog]) -> None:
        """`table` has their segments, and each partition the starts of its epochs."""
        uploaded = [each for each in partitions if each.uploaded_end > each.log_start]
        if not uploaded:
            return
        self._under_way += 1
        try:
            await self._adopt(uploaded)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._wave = _Wave()

    async def _adopt(self, uploaded: Sequence[PartitionLog]) -> None:
        wave = self._wave
        # An older state than the newest one does as well: then more is asked of objects.
        known = await once(wave.states, "", self._states.everybodys)
        pictures = {_place(each): _true_part(known.get(_place(each), ()), each) for each in uploaded}
        wanted = {
            place: [each for each in self._table.of(place) if each.end_offset > _told_end(picture)]
            for place, picture in pictures.items()
        }
        objects = await self._ask(wave, {each.key: each for found in wanted.values() for each in found})
        for partition in uploaded:
            place = _place(partition)
            states = [state for each in wanted[place] for state in await self._read(objects.get(each.key), place, each)]
            _apply(partition, pictures[place], states)
        log.info("producers and transactions taken over", partitions=len(uploaded), objects=len(objects))

    async def _ask(self, wave: "_Wave", segments: Mapping[str, LiveSegment]) -> dict[str, "_Asked"]:
        """The footers of these objects, by name."""

        async def ask(segment: LiveSegment) -> _Asked | None:
            async with wave.places:
                return await self._ask_one(segment)

        found = await asyncio.gather(
            *(once(wave.objects, key, partial(ask, segment)) for key, segment in segments.items())
        )
        return {key: each for key, each in zip(segments, found, strict=True) if each is not None}

    async def _ask_one(self, segment: LiveSegment) -> "_Asked | None":
        try:
            try:
                return await self._get_end(segment)
            except Corrupted:
                return await self._get_end(segment)  # One bad answer of the store is no reason to give anything up.
        except (Corrupted, ObjectNotFound) as error:
            log.error("an object does not tell of its producers", key=segment.key, reason=str(error))
            return None

    async def _get_end(self, segment: LiveSegment) -> "_Asked":
        size = segment.object_size or (await self._blobs.head(segment.key)).size
        end = await self._get_last(segment.key, size, min(size, _END_BYTES))
        needed = footer_size(end)
        if needed > size:
            raise Corrupted(f"footer of {needed} bytes in an object of {size}")
        if needed > len(end):
            end = await self._get_last(segment.key, size, needed)
        return _Asked(end, size)

    async def _get_last(self, key: str, size: int, length: int) -> Buffer:
        try:
            return await self._blobs.get_range(key, size - length, length)
        except StoreUnavailable as error:
            # A store that is away, or an object that was cut short.
            if (found := (await self._blobs.head(key)).size) == size:
                raise
            raise Corrupted(f"{found} bytes where {size} were committed") from error

    async def _read(self, found: "_Asked | None", place: PartitionKey, segment: LiveSegment) -> list[RunState]:
        """What the runs of one segment say, in their order."""
        states: list[RunState] = []
        for run, state in found.runs(place, segment) if found is not None else ():
            if state is None:
                assert found is not None
                state = await self._read_run(found, run, segment.key)
            if state is not None:
                states.append(state)
        return states

    async def _read_run(self, found: "_Asked", run: Run, key: str) -> RunState | None:
        data: Buffer | None = found.bytes_of(run)
        for is_last in (False, True):
            try:
                if data is None:
                    data = await self._blobs.get_range(key, run.position, run.length)
                check_run(run, data)
                return state_of([data])
            except (Corrupted, ObjectNotFound) as error:
                data = None
                if is_last:
                    log.error("a run does not tell of its producers", key=key, reason=str(error))
        return None


class _Wave:
    """What adoptions that are under way beside each other have asked for."""

    def __init__(self) -> None:
        self.states: dict[str, asyncio.Future[dict[PartitionKey, list[PartitionCheckpoint]]]] = {}
        self.objects: dict[str, asyncio.Future[_Asked | None]] = {}
        self.places = asyncio.Semaphore(_GETS_AT_ONCE)


async def once(known: dict[str, "asyncio.Future[T]"], key: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `ask` gives, asked by the first who wants it. One that failed is asked again by the next."""
    asking = known.get(key)
    if asking is None:
        asking = known[key] = asyncio.ensure_future(ask())
    try:
        return await asyncio.shield(asking)
    except BaseException:
        if known.get(key) is asking:
            del known[key]
        raise


class _Asked:
    """The end of an object, taken apart."""

    def __init__(self, end: Buffer, object_size: int) -> None:
        self._start = object_size - len(end)
        self._by_place: dict[PartitionKey, list[tuple[Run, RunState | None]]] = {}
        for run, state in zip(decode_footer(end).runs, decode_run_states(end), strict=True):
            self._by_place.setdefault((run.topic_id, run.partition), []).append((run, state))
        has_all = all(state is not None for runs in self._by_place.values() for _, state in runs)
        self._end = None if has_all else memoryview(end)

    def runs(self, place: PartitionKey, segment: LiveSegment) -> Iterable[tuple[Run, RunState | None]]:
        end = segment.position + segment.length
        return (each for each in self._by_place.get(place, ()) if segment.position <= each[0].position < end)

    def bytes_of(self, run: Run) -> memoryview | None:
        """None where they are not among what was asked for."""
        if self._end is None or run.position < self._start:
            return None
        position = run.position - self._start
        return self._end[position : position + run.length]


def _true_part(pictures: Sequence[PartitionCheckpoint], partition: PartitionLog) -> PartitionCheckpoint | None:
    """The newest of what several leaders have saved, as far as it came true: up to its `end_offset`.

    A leader that was replaced may have known of records that nobody has: its part ends where the next epoch begins. Of
    transactions it tells how they stood at its `uploaded_end`: of those that ended behind that, and were committed, it may
    have forgotten that they were open there.
    """
    known = [each for each in pictures if each.epoch_starts]
    if not known:
        return None
    newest = max(known, key=lambda each: (each.epoch_starts[-1][0], each.end_offset))
    epoch = newest.epoch_starts[-1][0]
    later = [start.start_offset for start in partition.epoch_starts if start.epoch > epoch]
    if not any(start.epoch <= epoch for start in partition.epoch_starts):
        return None  # So long ago that where its epoch ended is forgotten.
    end = min([newest.end_offset, partition.uploaded_end, *later])
    told_end = min(newest.uploaded_end, end)
    return msgspec.structs.replace(
        newest,
        uploaded_end=told_end,
        end_offset=end,
        epoch_starts=[each for each in newest.epoch_starts if each[1] < end],
        producers=still_stored(newest.producers, end),
        transactions=_as_of(told_end, newest.transactions),
    )


def _as_of(offset: int, known: TransactionSnapshot | None) -> TransactionSnapshot:
    """How the transactions stood when the log ended at `offset`."""
    if known is None:
        return TransactionSnapshot()
    undecided = {each.producer_id: each.first_offset for each in known.open if each.first_offset < offset}
    ended = ((each.producer_id, each.first_offset, each.marker_offset) for each in known.decided)
    aborted = ((each.producer_id, each.first_offset, each.marker_offset) for each in known.aborted)
    undecided |= {producer: first for producer, first, marker in (*ended, *aborted) if first < offset <= marker}
    return TransactionSnapshot(
        open=[
            OpenTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in sorted(undecided.items(), key=lambda each: each[1])
        ],
        aborted=[each for each in known.aborted if each.marker_offset < offset],
    )


def _told_end(picture: PartitionCheckpoint | None) -> int:
    """Behind this, the objects are asked."""
    return picture.uploaded_end if picture is not None else 0


def _apply(partition: PartitionLog, picture: PartitionCheckpoint | None, states: Sequence[RunState]) -> None:
    producers = merged(picture.producers if picture is not None else (), _producers_in(states))
    if producers:
        partition.producers = Producers()
        partition.producers.restore(producers)
    transactions = _transactions_in(picture, states)
    transactions.truncate_below(partition.log_start)
    if transactions.snapshot() != TransactionSnapshot():
        partition.transactions = transactions
    # Not from the segments: theirs is the epoch in which they were uploaded, in a later life perhaps than their records.
    starts = dict(picture.epoch_starts if picture is not None else ())
    starts.update(partition.epoch_starts)
    partition.epoch_starts = [EpochStart(epoch, starts[epoch]) for epoch in sorted(starts)]


def _producers_in(states: Iterable[RunState]) -> list[ProducerSnapshot]:
    found: dict[int, ProducerSnapshot] = {}
    for state in states:
        for row in state.producers:
            account = _account_of(row)
            before = found.get(row.producer_id)
            found[row.producer_id] = account if before is None else merged([before], [account])[0]
    return list(found.values())


def _account_of(row: ProducerRow) -> ProducerSnapshot:
    return ProducerSnapshot(
        row.producer_id,
        row.epoch,
        row.last_timestamp_ms,
        [_sent(each) for each in row.sent],
        row.coordinator_epoch,
    )


def _sent(row: SentRow) -> SentBatch:
    last_sequence = (row.base_sequence + row.last_offset_delta) % _SEQUENCE_SPACE
    return SentBatch(row.base_sequence, last_sequence, row.base_offset, row.base_offset + row.last_offset_delta + 1)


def _transactions_in(picture: PartitionCheckpoint | None, states: Iterable[RunState]) -> TransactionIndex:
    known = picture.transactions if picture is not None else None
    index = TransactionIndex.restore(known or TransactionSnapshot())
    for row in (row for state in states for row in state.transactions):
        if row.offset < _told_end(picture):
            continue  # The picture has it.
        if row.kind == BEGUN:
            index.note_batch(row.producer_id, row.offset, is_transactional=True)
        else:
            index.end(row.producer_id, commit=row.kind == COMMITTED, marker_offset=row.offset)
    return index


def _place(partition: PartitionLog) -> PartitionKey:
    return partition.topic_id, partition.index
