"""The inventory made anew from the metastore, when the bucket has lost a manifest and nobody has its bytes any more.

The metastore has every live segment. What it does not keep (footer sizes, aborted transactions) comes from the manifests and the
checkpoint that are still there, or else from the object's own end and from the log.
"""

from typing import NamedTuple

from headrace.blob.store import BlobStore
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import read_all
from headrace.control.topics import TopicEntry
from headrace.errors import NotReady
from headrace.ids import TopicId, show_topic_id
from headrace.log.store import LogStore
from headrace.tier.commits import Commits, topic_entry
from headrace.tier.describe import aborted_in, stable_below
from headrace.tier.format.framing import TAIL_SIZE
from headrace.tier.format.inventory import Inventory, PartitionKey, PartitionState
from headrace.tier.format.manifest import Segment
from headrace.tier.format.object import footer_size
from headrace.tier.inventory import known_segments
from headrace.tier.rows import object_sizes, partition_rows
from headrace.tier.segments import LiveSegment


class SegmentName(NamedTuple):
    topic_id: str
    partition: int
    base_offset: int
    key: str


class Rebuilder:
    def __init__(self, *, blobs: BlobStore, cluster: Cluster, commits: Commits, logs: LogStore) -> None:
        self._blobs = blobs
        self._cluster = cluster
        self._commits = commits
        self._logs = logs
        self._known: dict[SegmentName, Segment] = {}

    async def rebuild(self) -> Inventory:
        """The inventory after the newest commit."""
        self._known = {_name(each): each for each in await known_segments(self._blobs)}
        # Once while commits go on: what has to be read from objects is known by then, and the second time is short.
        await self._assemble(0)
        async with self._commits.standing_still() as number:
            return await self._assemble(number)

    async def _assemble(self, number: int) -> Inventory:
        inventory = Inventory(self._cluster.cluster_id, number)
        sizes = await object_sizes(self._cluster.store)
        for topic in list(self._cluster.topics):
            states = [await self._partition(topic, index, sizes) for index in range(len(topic.partitions))]
            if any(state.segments or state.log_start for state in states):
                entry = topic_entry(topic)
                inventory.topics[entry.topic_id] = entry
                for state in states:
                    inventory.partitions[PartitionKey(state.topic_id, state.partition)] = state
        return inventory

    async def _partition(self, topic: TopicEntry, index: int, sizes: dict[int, int]) -> PartitionState:
        items = (await read_all(self._cluster.store, keys.segments(topic.name, index))).items
        live = partition_rows(items, sizes).live
        segments = tuple([await self._segment(topic.id, index, each) for each in live])
        log_start = topic.partitions[index].log_start
        aborted = {each.last_offset: each for segment in segments for each in segment.aborted}
        return PartitionState(
            topic_id=show_topic_id(TopicId(topic.id)),
            partition=index,
            log_start=log_start,
            last_stable_offset=max([log_start, *(segment.last_stable_offset for segment in segments)]),
            segments=segments,
            aborted=tuple(aborted[offset] for offset in sorted(aborted) if offset >= log_start),
        )

    async def _segment(self, topic_id: bytes, index: int, live: LiveSegment) -> Segment:
        name = SegmentName(show_topic_id(TopicId(topic_id)), index, live.base_offset, live.key)
        if (known := self._known.get(name)) is not None:
            return known
        partition = self._logs.find(topic_id, index)
        if partition is None:
            raise NotReady(f"{name.topic_id}-{index} is not open: which of its transactions were aborted is not known")
        end = await self._blobs.get_range(live.key, live.object_size - TAIL_SIZE, TAIL_SIZE)
        segment = Segment(
            topic_id=name.topic_id,
            partition=index,
            base_offset=live.base_offset,
            end_offset=live.end_offset,
            key=live.key,
            object_size=live.object_size,
            footer_size=footer_size(end),
            position=live.position,
            length=live.length,
            record_count=live.record_count,
            max_timestamp_ms=live.max_timestamp_ms,
            leader_epoch=live.leader_epoch,
            last_stable_offset=stable_below(partition, live.end_offset),
            aborted=aborted_in(partition, live.base_offset, live.end_offset),
        )
        self._known[name] = segment
        return segment


def _name(segment: Segment) -> SegmentName:
    return SegmentName(segment.topic_id, segment.partition, segment.base_offset, segment.key)
