"""What this process knows of the metastore's segment entries, and which of it is in doubt.

The segment table has what is in object storage, tails are what is still in the WAL. Both change after the metastore has changed, and
never before. Where it is not known whether it has, the partition is doubted: what memory says of it may be wrong until its entries
were read anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.metastore import KeyValue, RangeResult, Read, chunks_of, only, read_all
from headrace.tier.rows import PartitionRows, Tail, object_sizes, partition_rows
from headrace.tier.segments import PartitionKey, SegmentTable

_READ_AT_ONCE: Final = 32
"""Partitions whose entries are read by one transaction, with two operations each."""


class KnownEntries:
    """Belongs to one event loop."""

    def __init__(self, cluster: Cluster, table: SegmentTable) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._table = table
        self._tails: dict[PartitionKey, Tail] = {}
        self._doubted: dict[PartitionKey, None] = {}
        """Partitions of transactions whose outcome is not known."""

    async def load(self) -> None:
        """All that there is, of every topic."""
        sizes = await object_sizes(self._store)
        for topic in self._cluster.topics:
            for index in range(len(topic.partitions)):
                rows = partition_rows((await read_all(self._store, keys.segments(topic.name, index))).items, sizes)
                for live in rows.live:
                    self._table.add((topic.id, index), live)
                if rows.tail is not None:
                    self._tails[(topic.id, index)] = rows.tail

    def tail(self, partition: PartitionKey) -> Tail | None:
        return self._tails.get(partition)

    def move_tail(self, partition: PartitionKey, base_offset: int, revision: int) -> None:
        """The metastore has said so, at this revision."""
        self._tails[partition] = Tail(base_offset, revision)

    def forget(self, partition: PartitionKey) -> None:
        self._table.set(partition, ())
        self._tails.pop(partition, None)
        self._doubted.pop(partition, None)

    def forget_topic(self, topic_id: bytes) -> None:
        self._table.forget_topic(topic_id)
        for partition in [key for key in self._tails if key[0] == topic_id]:
            del self._tails[partition]

    # -- doubt ---------------------------------------------------------------------------------------------------

    @property
    def is_doubted(self) -> bool:
        return bool(self._doubted)

    def doubt(self, partitions: Iterable[PartitionKey]) -> None:
        self._doubted.update(dict.fromkeys(partitions))

    @contextmanager
    def doubting(self, partitions: Iterable[PartitionKey]) -> Iterator[None]:
        """Around a transaction and what follows from it in memory: whatever ends it early leaves both in doubt."""
        try:
            yield
        except BaseException:
            self.doubt(partitions)
            raise

    async def read_anew(self, tell: Callable[[PartitionKey], None]) -> None:
        """The next partitions that are doubted; `tell` hears of each that is still there. No commit may be under way meanwhile.

        Together: whoever takes over a thousand of them cannot ask a thousand times.
        """
        partitions = list(islice(self._doubted, _READ_AT_ONCE))
        rows = await self._read_rows(partitions)
        sizes = await self._sizes_of(live.object_id for each in rows.values() for live in each.live)
        for partition, read in rows.items():
            live = [msgspec.structs.replace(each, object_size=sizes[each.object_id]) for each in read.live]
            self._table.set(partition, live)
            known = self._tails.get(partition)
            # A claim that was made meanwhile is newer than what was read.
            if read.tail is not None and (known is None or read.tail.revision >= known.revision):
                self._tails[partition] = read.tail
            tell(partition)
        for partition in partitions:
            self._doubted.pop(partition, None)

    async def _read_rows(self, partitions: Sequence[PartitionKey]) -> dict[PartitionKey, PartitionRows]:
        topics = {each: self._cluster.topics.find_by_id(each[0]) for each in partitions}
        named = {each: topic for each, topic in topics.items() if topic is not None}
        reads = [
            Read(found)
            for (_, index), topic in named.items()
            for found in (only(keys.topic_config(topic.name)), keys.segments(topic.name, index))
        ]
        # By a transaction: it waits its turn behind those that nobody waits for any more.
        result = await self._store.txn((), reads)
        found = [each.items for each in result.results if isinstance(each, RangeResult)]
        return {
            each: partition_rows(segments)
            for each, config, segments in zip(named, found[::2], found[1::2], strict=True)
            if self._is_same_topic(config, each[0])
        }

    async def _sizes_of(self, object_ids: Iterable[int]) -> dict[int, int]:
        sizes = {each: self._table.object_size(each) for each in object_ids}
        missing = [each for each, size in sizes.items() if size is None]
        found: dict[str, int] = {}
        for chunk in chunks_of((Read(only(keys.tier_object(each))) for each in missing), self._store.txn_limits):
            result = await self._store.txn((), chunk)
            for read in result.results:
                assert isinstance(read, RangeResult)
                found |= {item.key: values.decode(pb.TierObject, item.value).size_bytes for item in read.items}
        return {
            each: size if size is not None else found.get(keys.tier_object(each), 0) for each, size in sizes.items()
        }

    def _is_same_topic(self, config: Sequence[KeyValue], topic_id: bytes) -> bool:
        """Whether the name is still this topic's, in the metastore and for us."""
        is_named = any(values.decode(pb.TopicConfig, item.value).topic_id == topic_id for item in config)
        return is_named and self._cluster.topics.find_by_id(topic_id) is not None
