"""Requests for what another broker leads, passed on to it: for doors whose clients have no way to find a leader.

One hop: whoever is asked leads the partition, or refuses. A refusal says that nothing was done: the leader is looked for again, for a
few seconds, as a client would do that could. An answer that does not come, for the connection broke or a leader was deposed in the
middle, says nothing of what was done; nothing is repeated then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from headrace.broker.deferred import Deferred
from headrace.broker.offsets import CommittedOffset, Offsets, Place
from headrace.broker.peers import calls
from headrace.broker.peers.calls import (
    Append,
    AppendedAt,
    CommitOffset,
    DescribePartitions,
    Done,
    FindOffset,
    KeepEvents,
    OffsetFound,
    PartitionFacts,
    PartitionsDescribed,
    Peers,
    ReadRecords,
    RecordsFound,
)
from headrace.broker.produce import Produce
from headrace.broker.topics import Topic, Topics
from headrace.errors import CoordinatorLoading, Elsewhere, HeadraceError, NotCoordinator, NotLeader, OutcomeUnknown
from headrace.log.partition import PartitionLog
from headrace.records.record import NewRecord

PATIENCE_S: Final = 5.0
"""How long a leader is looked for: a takeover takes a second or two."""
_AGAIN_S: Final = 0.05

T = TypeVar("T")


class Forwarding:
    def __init__(self, topics: Topics, produce: Produce, offsets: Offsets) -> None:
        self._topics = topics
        self._produce = produce
        self._offsets = offsets
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.peers: Peers | None = None
        """The other brokers, where there are any."""

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    # -- partitions ----------------------------------------------------------------------------------------------

    def append(self, partition: PartitionLog, batch: bytearray) -> Deferred[int]:
        """By whoever leads it: the offset of the first record, once it is kept. `partition` is not led here, or not yet."""
        name, index = partition.topic_name, partition.index
        return self._later(lambda: patiently(lambda: self._append(name, index, batch)))

    async def _append(self, name: str, index: int, batch: bytearray) -> int:
        partition = self._topics.partition(name, index)
        if partition.removed:
            call = Append(name, index, partition.leader_epoch, bytes(batch))
            return (await calls.ask(self._peers, self._leader_of(partition), call, AppendedAt)).base_offset
        return await kept(self._produce, partition, batch)

    async def keep_events(self, topic: str, events: Sequence[bytes]) -> None:
        """Events of the audit, in the only partition of its topic. Those whose outcome is not known may be kept twice: they have ids."""
        await patiently(lambda: self._keep_events(topic, events))

    async def _keep_events(self, topic: str, events: Sequence[bytes]) -> None:
        partition = self._topics.partition(topic, 0)
        if partition.removed:
            call = KeepEvents(partition.leader_epoch, list(events))
            await calls.ask(self._peers, self._leader_of(partition), call, Done)
        else:
            await self._produce.append_internal(partition, [NewRecord(value=event) for event in events])

    async def read(self, partition: PartitionLog, offset: int, *, max_bytes: int, max_records: int) -> RecordsFound:
        """As `Fetch.read_records`. Nothing, below the log's start and at its end: the answer says where those are."""

        async def ask() -> RecordsFound:
            found = self._topics.partition(partition.topic_name, partition.index)
            call = ReadRecords(found.topic_name, found.index, found.leader_epoch, offset, max_bytes, max_records)
            return await calls.ask(self._peers, self._leader_of(found), call, RecordsFound)

        return await patiently(ask)

    async def facts_of(self, topic: Topic, indexes: Sequence[int]) -> dict[int, PartitionFacts]:
        """Of partitions that this broker leads, and of those that others do, each of which is asked once."""
        return await patiently(lambda: self._facts_of(topic, indexes))

    async def _facts_of(self, topic: Topic, indexes: Sequence[int]) -> dict[int, PartitionFacts]:
        found: dict[int, PartitionFacts] = {}
        elsewhere: dict[str, list[PartitionLog]] = {}
        for partition in (topic.partitions[index] for index in indexes):
            if partition.removed:
                elsewhere.setdefault(self._leader_of(partition), []).append(partition)
            else:
                found[partition.index] = facts(partition)
        for leader, theirs in elsewhere.items():
            call = DescribePartitions(topic.name, [(each.index, each.leader_epoch) for each in theirs])
            described = await calls.ask(self._peers, leader, call, PartitionsDescribed)
            found |= dict(zip((each.index for each in theirs), described.facts, strict=True))
        return found

    def _leader_of(self, partition: PartitionLog) -> str:
        """Another broker; raises where there is none, or it is this one that is about to open the partition."""
        topic = self._topics.get(partition.topic_name)
        leader = topic.leaders[partition.index]
        if self.peers is None or not leader or self._topics.is_being_opened(topic, partition.index):
            raise NotLeader(f"{topic.name}-{partition.index} is led by {leader or 'nobody'}", broker=leader)
        return leader

    # -- committed offsets ---------------------------------------------------------------------------------------

    async def commit(self, group: str, place: Place, offset: CommittedOffset, *, is_volatile: bool = False) -> None:
        """At whichever broker looks after the group."""
        if self.peers is None:
            await self._offsets.commit(group, {place: offset}, is_volatile=is_volatile)
        else:
            await patiently(lambda: self._commit(group, place, offset, is_volatile))

    async def _commit(self, group: str, place: Place, offset: CommittedOffset, is_volatile: bool) -> None:
        if self._offsets.is_here(group):
            await self._offsets.commit(group, {place: offset}, is_volatile=is_volatile)
            return
        home, epoch = await self._home_of(group)
        call = CommitOffset(group, epoch, *place, offset.offset, offset.commit_ms, is_volatile)
        await calls.ask(self._peers, home, call, Done)

    async def committed(self, group: str, place: Place) -> int | None:
        if self.peers is None:
            return self._committed_here(group, place)
        return await patiently(lambda: self._committed(group, place))

    def _committed_here(self, group: str, place: Place) -> int | None:
        found = self._offsets.committed(group, *place)
        return None if found is None else found.offset

    async def _committed(self, group: str, place: Place) -> int | None:
        if self._offsets.is_here(group):
            return self._committed_here(group, place)
        home, epoch = await self._home_of(group)
        return (await calls.ask(self._peers, home, FindOffset(group, epoch, *place), OffsetFound)).offset

    async def _home_of(self, group: str) -> tuple[str, int]:
        home, epoch = await self._offsets.home_of(group)
        if not home:
            raise NotCoordinator(f"nobody looks after group {group!r} just now")
        return home, epoch

    @property
    def _peers(self) -> Peers:
        assert self.peers is not None, "a broker that is alone leads everything"
        return self.peers

    def _later(self, work: Callable[[], Awaitable[T]]) -> Deferred[T]:
        done: Deferred[T] = Deferred()

        async def run() -> None:
            try:
                done.resolve(await work())
            except HeadraceError as error:
                done.reject(error)

        task = asyncio.ensure_future(run())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return done


async def kept(produce: Produce, partition: PartitionLog, batch: bytearray) -> int:
    """Append here. Whoever is refused can go elsewhere; whoever is deposed with the batch under way must not, for it may be kept."""
    appending = produce.append_built(partition, batch)
    try:
        return (await appending).base_offset
    except Elsewhere as error:
        raise OutcomeUnknown(f"deposed while a batch was under way: {error}") from error


def facts(partition: PartitionLog) -> PartitionFacts:
    return PartitionFacts(partition.log_start, partition.high_watermark, partition.end_offset, partition.segment_count)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Again while nobody is there who may do it."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while True:
        try:
            return await work()
        except (NotLeader, NotCoordinator, CoordinatorLoading):
            if loop.time() >= until_s:
                raise
        await asyncio.sleep(_AGAIN_S)
