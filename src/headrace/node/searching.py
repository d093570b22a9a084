"""A search of a whole topic: what the bucket has is looked through by processes of their own, the rest by this one.

Complete or said not to be: every match is counted, the newest are kept, and what could not be read is named. A segment whose
object is merged or deleted meanwhile is planned anew; records below the log start never count.
"""

import asyncio
import heapq
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.admin.api.calls import SearchOrder, SearchResult
from headrace.admin.api.operations import Progress
from headrace.broker.browse import SeenRecord, browse
from headrace.broker.services import Broker
from headrace.broker.topics import PartitionLog
from headrace.config.settings import NodeSettings
from headrace.errors import Fault
from headrace.log.transactions import AbortedTransaction
from headrace.records.filters import RecordFilter, parse_filter
from headrace.records.record import Record
from headrace.tier.search.messages import Advanced, Ended, Found, Line, Order, Stretch
from headrace.tier.service import Tier

_PROCESSES_MAX: Final = 4
_LINE_MAX: Final = 256 * 1024 * 1024
"""One record, in base64, with its headers."""
_PLANS_MAX: Final = 4
"""Times a segment is planned again because its object was merged meanwhile."""
_TAIL_COUNT: Final = 100_000
"""Matches taken from one read of the tail."""


@dataclass(slots=True)
class _Search:
    order: SearchOrder
    chosen: RecordFilter
    progress: Progress
    newest: list[tuple[int, int, int, SeenRecord]] = field(default_factory=list)
    matched: int = 0
    scanned: int = 0
    unreadable: list[str] = field(default_factory=list)
    gone: list[Stretch] = field(default_factory=list)

    def keep(self, seen: SeenRecord) -> None:
        row = (seen.record.timestamp_ms, seen.partition, seen.record.offset, seen)
        if len(self.newest) < self.order.limit:
            heapq.heappush(self.newest, row)
        else:
            heapq.heappushpop(self.newest, row)

    def result(self, *, is_complete: bool) -> SearchResult:
        return SearchResult(
            records=[row[3] for row in sorted(self.newest, key=lambda row: row[:3], reverse=True)],
            matched=self.matched,
            scanned=self.scanned,
            unreadable=self.unreadable,
            is_complete=is_complete,
        )


class TopicSearch:
    def __init__(self, settings: NodeSettings, *, broker: Broker, tier: Tier) -> None:
        self._store = settings.object_store
        self._broker = broker
        self._tier = tier

    async def run(self, order: SearchOrder, progress: Progress) -> SearchResult:
        topic = self._broker.topics.get(order.topic)
        wanted = [each for each in topic.partitions if order.partition in (None, each.index)]
        search = _Search(order, parse_filter(order.filter), progress)
        try:
            stretches = self._plan(wanted, search)
            tails = {each: self._tail_start(each) for each in wanted}
            progress.total = sum(each.length for each in stretches)
            for _ in range(_PLANS_MAX):
                await self._look_through(stretches, search)
                if not search.gone:
                    break
                stretches, search.gone = self._plan_again(search.gone, wanted, search), []
            search.unreadable += [f"{each.key} is gone" for each in search.gone]
            for partition, start in tails.items():
                await self._look_through_tail(partition, start, search)
        finally:
            # Also of a search that is cancelled: what it has found so far is worth something.
            progress.partial = search.result(is_complete=False)
        return search.result(is_complete=not search.unreadable)

    def _tail_start(self, partition: PartitionLog) -> int:
        """Where the bucket ends for the search processes; nowhere if only this process can see the store."""
        return partition.log_start if self._store.type == "memory" else max(partition.uploaded_end, partition.log_start)

    def _plan(self, partitions: Sequence[PartitionLog], search: _Search) -> list[Stretch]:
        if self._store.type == "memory":
            return []
        return [stretch for each in partitions for stretch in self._stretches(each, 0, each.uploaded_end, search)]

    def _plan_again(
        self, gone: Sequence[Stretch], partitions: Sequence[PartitionLog], search: _Search
    ) -> list[Stretch]:
        by_index = {each.index: each for each in partitions}
        return [
            stretch
            for each in gone
            for stretch in self._stretches(by_index[each.partition], each.start, each.end, search)
        ]

    def _stretches(self, partition: PartitionLog, start: int, end: int, search: _Search) -> list[Stretch]:
        since_ms, until = search.order.since_ms, min(end, partition.uploaded_end)
        begin = max(start, partition.log_start)
        return [
            Stretch(
                number=number,
                partition=partition.index,
                key=segment.key,
                position=segment.position,
                length=segment.length,
                start=max(segment.base_offset, begin),
                end=min(segment.end_offset, until),
            )
            for number, segment in enumerate(self._tier.table.of((partition.topic_id, partition.index)))
            if segment.end_offset > begin and segment.base_offset < until and segment.max_timestamp_ms >= since_ms
        ]

    async def _look_through(self, stretches: Sequence[Stretch], search: _Search) -> None:
        if not stretches:
            return
        count = min(_PROCESSES_MAX, os.cpu_count() or 1, len(stretches))
        shares: list[list[Stretch]] = [[] for _ in range(count)]
        # The largest first, each to whoever has least: they end at about the same time.
        for stretch in sorted(stretches, key=lambda each: -each.length):
            min(shares, key=lambda share: sum(each.length for each in share)).append(stretch)
        async with asyncio.TaskGroup() as group:
            for share in shares:
                group.create_task(self._watch(share, search))

    async def _watch(self, share: Sequence[Stretch], search: _Search) -> None:
        numbered = [msgspec.structs.replace(each, number=number) for number, each in enumerate(share)]
        order = Order(store=self._store, filter=self._filter_text(search), keep=search.order.limit, stretches=numbered)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace.tier.search.worker", stdin=PIPE, stdout=PIPE, limit=_LINE_MAX
        )
        try:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(order))
            await process.stdin.drain()
            process.stdin.close()
            open_numbers = set(range(len(numbered)))
            async for line in _lines(process):
                self._hear(line, numbered, search)
                if isinstance(line, Ended):
                    open_numbers.discard(line.number)
            if await process.wait() or open_numbers:
                raise Fault(f"a search process ended with {process.returncode} before its work was done")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _filter_text(self, search: _Search) -> str:
        if not search.order.since_ms:
            return search.order.filter
        since = f"timestamp >= {search.order.since_ms}"
        return f"({search.order.filter}) and {since}" if search.order.filter.strip() else since

    def _hear(self, line: Line, share: Sequence[Stretch], search: _Search) -> None:
        match line:
            case Advanced():
                search.progress.done += line.size
                search.scanned += line.records
                search.matched += line.matched
            case Found():
                search.keep(self._seen(line, search.order.topic))
            case Ended(is_missing=True):
                search.gone.append(share[line.number])
            case Ended(problem=str() as problem):
                search.unreadable.append(problem)

    def _seen(self, found: Found, topic: str) -> SeenRecord:
        aborted: Sequence[AbortedTransaction] = ()
        if found.is_transactional and self._broker.topics.has_partition(topic, found.partition):
            partition = self._broker.topics.partition(topic, found.partition)
            aborted = partition.aborted_between(found.offset, found.offset + 1)
        return SeenRecord(
            partition=found.partition,
            record=Record(found.offset, found.timestamp_ms, found.key, found.value, tuple(found.headers)),
            batch_base_offset=found.batch_base_offset,
            batch_end_offset=found.batch_end_offset,
            leader_epoch=found.leader_epoch,
            codec=found.codec,
            producer_id=found.producer_id,
            is_transactional=found.is_transactional,
            is_aborted=any(
                each.producer_id == found.producer_id and each.first_offset <= found.offset <= each.marker_offset
                for each in aborted
            ),
        )

    async def _look_through_tail(self, partition: PartitionLog, start: int, search: _Search) -> None:
        chosen = parse_filter(self._filter_text(search))
        offset, end = max(start, partition.log_start), partition.high_watermark
        while offset < end:
            seen = await browse(self._broker.fetch, partition, offset, end_offset=end, count=_TAIL_COUNT, chosen=chosen)
            search.scanned += seen.scanned
            search.matched += len(seen.records)
            for each in seen.records:
                search.keep(each)
            if seen.is_end or seen.next_offset <= offset:
                break
            offset = seen.next_offset


async def _lines(process: Process) -> AsyncIterator[Line]:
    assert process.stdout is not None
    decoder = msgspec.json.Decoder(Line)
    while line := await process.stdout.readline():
        yield decoder.decode(line)
