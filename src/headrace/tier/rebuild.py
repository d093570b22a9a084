"""The inventory made anew from the metastore, when the bucket has lost a manifest and nobody has its bytes any more.

The metastore has every live segment. What it does not keep (footer sizes, aborted transactions) comes from the manifests and the
checkpoint that are still there, or else from the object's own end and from the log.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.blob.store import BlobStore
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import KeyValue, Metastore, prefix, read_all
from headrace.errors import NotReady
from headrace.ids import TopicId, show_topic_id
from headrace.log.store import LogStore
from headrace.tier.describe import aborted_in, stable_below
from headrace.tier.format.framing import TAIL_SIZE
from headrace.tier.format.inventory import Inventory, PartitionKey, PartitionState
from headrace.tier.format.manifest import Segment, TopicEntry
from headrace.tier.format.object import footer_size
from headrace.tier.inventory import known_segments
from headrace.tier.rows import partition_rows
from headrace.tier.segments import LiveSegment


class SegmentName(NamedTuple):
    topic_id: str
    partition: int
    base_offset: int
    key: str


class Rebuilder:
    def __init__(self, *, blobs: BlobStore, store: Metastore, cluster_id: str, logs: LogStore) -> None:
        self._blobs = blobs
        self._store = store
        self._cluster_id = cluster_id
        self._logs = logs
        self._known: dict[SegmentName, Segment] = {}

    async def rebuild(self) -> Inventory:
        """The inventory after some commit, of which it has the number.

        Others may commit meanwhile: counter, topics and segments are read as they were at one revision.
        """
        self._known = {_name(each): each for each in await known_segments(self._blobs)}
        stored = _Stored((await read_all(self._store, prefix(""))).items)
        inventory = Inventory(self._cluster_id, stored.number)
        for name, config in stored.topics.items():
            states = [await self._partition(stored, name, config, index) for index in range(config.partitions)]
            if any(state.segments or state.log_start for state in states):
                entry = _topic_entry(name, config)
                inventory.topics[entry.topic_id] = entry
                for state in states:
                    inventory.partitions[PartitionKey(state.topic_id, state.partition)] = state
        return inventory

    async def _partition(self, stored: "_Stored", topic: str, config: pb.TopicConfig, index: int) -> PartitionState:
        live = partition_rows(stored.segments.get((topic, index), ()), stored.sizes).live
        segments = tuple([await self._segment(config.topic_id, index, each) for each in live])
        log_start = stored.log_starts.get((topic, index), 0)
        aborted = {each.last_offset: each for segment in segments for each in segment.aborted}
        return PartitionState(
            topic_id=show_topic_id(TopicId(config.topic_id)),
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
        if partition is None or partition.removed:
            raise NotReady(
                f"{name.topic_id}-{index} is not open here: which of its transactions were aborted is not known"
            )
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


class _Stored:
    """What the metastore has of topics and segments, sorted."""

    def __init__(self, items: Iterable[KeyValue]) -> None:
        self.number = 0
        """Of the newest commit."""
        self.topics: dict[str, pb.TopicConfig] = {}
        self.segments: dict[tuple[str, int], list[KeyValue]] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.sizes: dict[int, int] = {}
        for item in items:
            self._take(item)

    def _take(self, item: KeyValue) -> None:
        match keys.parse(item.key):
            case keys.TopicConfigKey(topic=topic):
                self.topics[topic] = values.decode(pb.TopicConfig, item.value)
            case keys.SegmentKey(topic=topic, partition=index):
                self.segments.setdefault((topic, index), []).append(item)
            case keys.LogStartKey(topic=topic, partition=index):
                self.log_starts[topic, index] = values.decode(pb.PartitionOffset, item.value).offset
            case keys.TierObjectKey(object_id=object_id):
                self.sizes[object_id] = values.decode(pb.TierObject, item.value).size_bytes
            case _ if item.key == keys.NEXT_COMMIT_NUMBER:
                self.number = values.decode(pb.Counter, item.value).next - 1


def _topic_entry(name: str, config: pb.TopicConfig) -> TopicEntry:
    return TopicEntry(
        topic_id=show_topic_id(TopicId(config.topic_id)),
        name=name,
        partition_count=config.partitions,
        is_internal=name.startswith("__"),
        config=dict(config.overrides),
    )


def _name(segment: Segment) -> SegmentName:
    return SegmentName(segment.topic_id, segment.partition, segment.base_offset, segment.key)
