"""A search of a whole topic: what the bucket has is looked through by processes of their own, the rest by this one.

Complete or said not to be: every match is counted, the newest are kept, and what could not be read is named. A segment whose
object is merged or deleted meanwhile is planned anew; records below the log start never count.
"""

import asyncio
import heapq
import os
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
from headrace.errors import Conflict, Fault
from headrace.log.transactions import AbortedTransaction
from headrace.node.search_processes import SearchProcesses
from headrace.records.filters import parse_filter
from headrace.records.record import Record
from headrace.tier.search.messages import Advanced, Ended, Found, Line, Order, Stretch
from headrace.tier.service import Tier

_PROCESSES_MAX: Final = 4
_PLANS_MAX: Final = 4
"""Times a segment is planned again because its object was merged meanwhile."""
_TAIL_COUNT: Final = 100_000
"""Matches taken from one read of the tail."""


@dataclass(slots=True)
class _Findings:
    """What was found in a stretch, or in all of them: counts, and the newest matches."""

    limit: int
    newest: list[tuple[int, int, int, SeenRecord]] = field(default_factory=list)
    matched: int = 0
    scanned: int = 0
    size: int = 0

    def keep(self, seen: SeenRecord) -> None:
        self._keep((seen.record.timestamp_ms, seen.partition, seen.record.offset, seen))

    def add(self, other: "_Findings") -> None:
        self.matched += other.matched
        self.scanned += other.scanned
        self.size += other.size
        for row in other.newest:
            self._keep(row)

    def _keep(self, row: tuple[int, int, int, SeenRecord]) -> None:
        if len(self.newest) < self.limit:
            heapq.heappush(self.newest, row)
        else:
            heapq.heappushpop(self.newest, row)


@dataclass(slots=True)
class _Search:
    """A search and how far it has come. What is found counts when its stretch has been looked through to its end: a search that is
    cancelled and resumed looks through the others again, and counts nothing twice."""

    order: SearchOrder
    topic_id: bytes
    progress: Progress
    found: _Findings
    waiting: set[Stretch]
    tails: dict[int, int]
    """By partition: the next offset behind what the bucket had at the beginning."""
    unreadable: list[str] = field(default_factory=list)
    gone: list[Stretch] = field(default_factory=list)

    def end(self, stretch: Stretch, found: _Findings) -> None:
        self.waiting.remove(stretch)
        self.found.add(found)

    def result(self, *, is_complete: bool) -> SearchResult:
        found = self.found
        return SearchResult(
            records=[row[3] for row in sorted(found.newest, key=lambda row: row[:3], reverse=True)],
            matched=found.matched,
            scanned=found.scanned,
            unreadable=self.unreadable,
            is_complete=is_complete,
        )


class TopicSearch:
    def __init__(self, settings: NodeSettings, *, broker: Broker, tier: Tier) -> None:
        self._store = settings.object_store
        self._broker = broker
        self._tier = tier
        self._processes = SearchProcesses()

    async def run(self, order: SearchOrder, progress: Progress) -> SearchResult:
        topic = self._broker.topics.get(order.topic)
        asked = [each for each in topic.partitions if order.partition in (None, each.index)]
        wanted = [each for each in asked if not each.removed]
        search = progress.state
        if not isinstance(search, _Search):
            search = self._begin(order, topic.id, wanted, progress)
            search.unreadable += [
                f"partition {each.index} is led by {topic.leaders[each.index] or 'nobody'}: search it there"
                for each in asked
                if each.removed
            ]
        elif search.topic_id != topic.id:
            raise Conflict(f"topic '{order.topic}' was deleted and created again since: search the new one")
        else:
            search.waiting, search.gone = set(self._plan_again([*search.waiting, *search.gone], wanted, search)), []
        progress.state = search
        progress.done = search.found.size
        progress.total = progress.done + sum(each.length for each in search.waiting)
        try:
            for _ in range(_PLANS_MAX):
                await self._look_through(list(search.waiting), search)
                if not search.gone:
                    break
                search.waiting, search.gone = set(self._plan_again(search.gone, wanted, search)), []
            search.unreadable += [f"{each.key} is gone" for each in search.gone]
            for partition in wanted:
                await self._look_through_tail(partition, search)
        except BaseException:
            progress.partial = search.result(is_complete=False)
            raise
        return search.result(is_complete=not search.unreadable)

    def _begin(
        self, order: SearchOrder, topic_id: bytes, wanted: Sequence[PartitionLog], progress: Progress
    ) -> _Search:
        return _Search(
            order,
            topic_id,
            progress,
            found=_Findings(order.limit),
            waiting=set(self._plan(wanted, order)),
            tails={each.index: self._tail_start(each) for each in wanted},
        )

    def _tail_start(self, partition: PartitionLog) -> int:
        """Where the bucket ends for the search processes; nowhere if only this process can see the store."""
        return partition.log_start if self._store.type == "memory" else max(partition.uploaded_end, partition.log_start)

    def _plan(self, partitions: Sequence[PartitionLog], order: SearchOrder) -> list[Stretch]:
        if self._store.type == "memory":
            return []
        return [stretch for each in partitions for stretch in self._stretches(each, 0, each.uploaded_end, order)]

    def _plan_again(
        self, gone: Sequence[Stretch], partitions: Sequence[PartitionLog], search: _Search
    ) -> list[Stretch]:
        by_index = {each.index: each for each in partitions}
        return [
            stretch
            for each in gone
            for stretch in self._stretches(by_index[each.partition], each.start, each.end, search.order)
        ]

    def _stretches(self, partition: PartitionLog, start: int, end: int, order: SearchOrder) -> list[Stretch]:
        since_ms, until = order.since_ms, min(end, partition.uploaded_end)
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
        order = Order(store=self._store, filter=_filter_text(search.order), keep=search.order.limit, stretches=numbered)
        async with self._processes.one() as (lines, orders):
            orders.write(msgspec.json.encode(order))
            await orders.drain()
            orders.write_eof()
            # A process looks through its stretches one after the other, in the order in which they were given.
            ended, found = 0, _Findings(search.order.limit)
            async for line in _read(lines):
                if isinstance(line, Ended):
                    self._note_end(line, share[line.number], found, search)
                    ended, found = ended + 1, _Findings(search.order.limit)
                else:
                    self._hear(line, found, search)
        if ended < len(share):
            raise Fault("a search process ended before its work was done")

    def _hear(self, line: Advanced | Found, found: _Findings, search: _Search) -> None:
        match line:
            case Advanced():
                search.progress.done += line.size
                found.size += line.size
                found.scanned += line.records
                found.matched += line.matched
            case Found():
                found.keep(self._seen(line, search.order.topic))

    def _note_end(self, line: Ended, stretch: Stretch, found: _Findings, search: _Search) -> None:
        if line.is_missing:
            # Its records are in another object now, all of them.
            search.end(stretch, _Findings(search.order.limit))
            search.gone.append(stretch)
            return
        search.end(stretch, found)
        if line.problem is not None:
            search.unreadable.append(line.problem)

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

    async def _look_through_tail(self, partition: PartitionLog, search: _Search) -> None:
        chosen = parse_filter(_filter_text(search.order))
        offset, end = max(search.tails[partition.index], partition.log_start), partition.high_watermark
        while offset < end:
            seen = await browse(self._broker.fetch, partition, offset, end_offset=end, count=_TAIL_COUNT, chosen=chosen)
            search.found.scanned += seen.scanned
            search.found.matched += len(seen.records)
            for each in seen.records:
                search.found.keep(each)
            if seen.is_end or seen.next_offset <= offset:
                search.tails[partition.index] = end
                break
            offset = search.tails[partition.index] = seen.next_offset


def _filter_text(order: SearchOrder) -> str:
    if not order.since_ms:
        return order.filter
    since = f"timestamp >= {order.since_ms}"
    return f"({order.filter}) and {since}" if order.filter.strip() else since


async def _read(lines: asyncio.StreamReader) -> AsyncIterator[Line]:
    decoder = msgspec.json.Decoder(Line)
    while line := await lines.readline():
        yield decoder.decode(line)
