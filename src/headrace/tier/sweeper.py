"""Lets go of records: raises log starts, takes dead segments out, and deletes objects nobody needs, in that order.

First the metastore and the log learn the new start, so no reader is promised what is about to go. Then segments below
it leave with a manifest. An object without segments is *superseded*, and its bytes are deleted only after a grace
period, for readers that still hold its name, and when the bucket has every manifest that is due. A prepared object that
was never committed is superseded when it expires. While the metastore is held (it was restored and not verified) no
object is touched.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.metastore import Compare, Delete, KeyValue, Put, absent, only, read_all, unchanged
from headrace.errors import Concurrent, Invalid, NotFound, NotLeader, Unavailable
from headrace.ids import TopicId, show_topic_id
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger
from headrace.tier import plans
from headrace.tier.commits import Commits
from headrace.tier.format.keys import DATA, object_id_of
from headrace.tier.format.manifest import LogStart, Manifest, SegmentRef
from headrace.tier.keeping import Keeping
from headrace.tier.ledger import Ledger
from headrace.tier.lives import Lives
from headrace.tier.metrics import TierMetrics
from headrace.tier.plans import Replacement
from headrace.tier.retention import retained_start
from headrace.tier.rows import object_id_in, referenced_keys
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable
from headrace.tier.settings import TierSettings

_SLICE: Final = 512
"""Partitions, or objects, looked at before others get the loop."""

log = get_logger(__name__)


class Sweeper:
    def __init__(
        self,
        settings: TierSettings,
        *,
        blobs: BlobStore,
        cluster: Cluster,
        commits: Commits,
        ledger: Ledger,
        lives: Lives,
        logs: LogStore,
        table: SegmentTable,
        clock: Clock,
        metrics: TierMetrics,
        on_deleted: Callable[[str], None] = lambda key: None,
        keeping: Keeping,
    ) -> None:
        self._settings = settings
        self._blobs = blobs
        self._cluster = cluster
        self._commits = commits
        self._ledger = ledger
        self._lives = lives
        self._logs = logs
        self._table = table
        self._clock = clock
        self._metrics = metrics
        self._on_deleted = on_deleted
        self._keeping = keeping
        self._told: dict[PartitionKey, int] = {}
        """The log start that the manifests already have."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_interval_ms / 1000)
            try:
                await self.sweep()
            except Unavailable as error:
                log.warning("sweep put off", reason=str(error))

    async def sweep(self) -> None:
        await self._commits.settle()
        await self.apply_retention()
        await self.drop_dead_segments()
        if not self._keeping.is_keeper():
            return
        await self.bury_topics()
        await self.collect_objects()
        await self._ledger.prune(grace_ms=self._settings.grace_ms)

    # -- log starts ----------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        rising: list[tuple[PartitionLog, int]] = []
        for index, partition in enumerate(list(self._logs.partitions())):
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            start = retained_start(
                self._table.of((partition.topic_id, partition.index)),
                partition.policy,
                log_start=partition.log_start,
                high_watermark=partition.high_watermark,
                tail_bytes=partition.unuploaded_bytes,
                now_ms=now_ms,
            )
            if start > partition.log_start and not partition.removed:
                rising.append((partition, start))
        await self._raise_starts(rising)

    async def _raise_starts(self, rising: Sequence[tuple[PartitionLog, int]]) -> None:
        if not rising:
            return
        try:
            await self._cluster.raise_log_starts({(p.topic_name, p.index): start for p, start in rising})
        except (NotFound, NotLeader) as error:
            log.info("retention met a topic that is gone or led elsewhere", reason=str(error))
            return
        for partition, start in rising:
            log.info("records expired", topic=partition.topic_name, partition=partition.index, log_start=start)
            partition.advance_log_start(start)

    # -- segments ------------------------------------------------------------------------------------------------

    async def drop_dead_segments(self) -> None:
        """Segments wholly below the log start leave; manifests learn of every log start that moved."""
        moved = [partition for partition in list(self._logs.partitions()) if self._is_due(partition)]
        for start in range(0, len(moved), _SLICE):
            await self._drop_below_starts(moved[start : start + _SLICE])

    def _is_due(self, partition: PartitionLog) -> bool:
        place = (partition.topic_id, partition.index)
        if partition.log_start > self._told.get(place, 0):
            return True
        # An upload that was under way when its records were deleted brings a dead segment after all.
        segments = self._table.of(place)
        return bool(segments) and segments[0].end_offset <= partition.log_start

    async def _drop_below_starts(self, moved: Sequence[PartitionLog]) -> None:
        changes: list[tuple[Replacement, Sequence[LiveSegment]]] = []
        starts: dict[PartitionKey, int] = {}
        for partition in moved:
            topic = self._cluster.topics.find_by_id(partition.topic_id)
            if topic is None:
                continue  # Deleted: its segments went with it.
            starts[(partition.topic_id, partition.index)] = partition.log_start
            segments = self._table.of((partition.topic_id, partition.index))
            dead = [each for each in segments if each.end_offset <= partition.log_start]
            if dead:
                changes.append((self._commits.replacement(topic, partition.index, dead), dead))
        if not starts:
            return
        await self._commits.replace(changes, lambda number, at: self._describe(number, at, starts, changes))
        self._told.update(starts)
        self._metrics.tier_retained_segments_total += sum(len(dead) for _, dead in changes)
        self._metrics.tier_retained_bytes_total += sum(each.length for _, dead in changes for each in dead)

    def _describe(
        self,
        number: int,
        at_ms: int,
        starts: Mapping[PartitionKey, int],
        changes: Iterable[tuple[Replacement, Sequence[LiveSegment]]],
    ) -> Manifest:
        return msgspec.structs.replace(
            self._commits.new_manifest(number, at_ms),
            log_starts=tuple(
                LogStart(topic_id=show_topic_id(TopicId(topic_id)), partition=index, offset=offset)
                for (topic_id, index), offset in starts.items()
            ),
            removed=tuple(
                SegmentRef(
                    topic_id=show_topic_id(TopicId(each.topic_id)),
                    partition=each.partition,
                    base_offset=segment.base_offset,
                    key=segment.key,
                )
                for each, dead in changes
                for segment in dead
            ),
        )

    async def bury_topics(self) -> None:
        """Tell the manifests which topics are gone. Their objects lost their segments with them."""
        graves = (await read_all(self._cluster.store, keys.DELETED_TOPICS)).items
        if not graves:
            return
        gone = [values.decode(pb.DeletedTopic, item.value).topic_id for item in graves]
        for topic_id in gone:
            self._commits.forget_topic(topic_id)
        await self._commits.bury(
            lambda number, at_ms: msgspec.structs.replace(
                self._commits.new_manifest(number, at_ms),
                deleted_topics=tuple(show_topic_id(TopicId(each)) for each in gone),
            ),
            graves,
        )

    # -- objects -------------------------------------------------------------------------------------------------

    async def collect_objects(self) -> int:
        """Move every object of ours one step towards its end; gives how many were deleted."""
        if not await self._may_collect():
            return 0
        now_ms = self._clock.now_ms()
        due = [each async for each in self._due_objects(now_ms)]
        if not due:
            return 0
        # Read after the objects' entries: `rows` says why none of these can be needed by what comes later.
        needed = await referenced_keys(self._cluster.store)
        doomed: list[_Entry] = []
        for each in due:
            if each.object.object_key in needed:
                # Of what others lead, memory knows nothing: there it is the rows alone that say it is needed.
                if self._keeping.is_alone or each.object.status != pb.COMMITTED:
                    await self._keep(each, now_ms)
            elif each.object.status == pb.SUPERSEDED:
                doomed.append(each)
            else:
                # From here on it cannot be committed any more: a commit compares this entry.
                await self._mark(each, pb.SUPERSEDED, now_ms)
        return await self._delete(doomed)

    async def _may_collect(self) -> bool:
        is_whole = await self._ledger.ensure_whole()
        if await self._cluster.store.get(plans.HOLD) is not None:
            log.warning("nothing is collected: the metastore was restored; run `headrace tier verify`")
            return False
        return is_whole

    async def _due_objects(self, now_ms: int) -> AsyncIterator["_Entry"]:
        """Objects that memory does not need, or whose time is over."""
        for index, item in enumerate((await read_all(self._cluster.store, keys.OBJECTS)).items):
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            found = _Entry(item, values.decode(pb.TierObject, item.value))
            object_id = object_id_in(item)
            is_ours = found.object.broker_id == self._commits.broker_id or not self._keeping.is_alone
            if not is_ours or self._commits.is_under_way(object_id):
                continue
            is_expired = now_ms - found.object.updated_ms >= self._settings.grace_ms
            is_committed = found.object.status == pb.COMMITTED
            if not self._table.is_referenced(object_id) if is_committed else is_expired:
                yield found

    async def _keep(self, each: "_Entry", now_ms: int) -> None:
        """A segment is in it after all. What memory says of the segments, or what was marked once, is wrong."""
        log.error("an object that records are in was about to be given up", key=each.object.object_key)
        self._commits.doubt((p.topic_id, p.index) for p in self._logs.partitions())
        if each.object.status != pb.COMMITTED:
            await self._mark(each, pb.COMMITTED, now_ms)

    async def _mark(self, each: "_Entry", status: "pb.ObjectStatus.ValueType", now_ms: int) -> None:
        entry = pb.TierObject()
        entry.CopyFrom(each.object)
        entry.status, entry.updated_ms = status, now_ms
        await self._cluster.store.txn(self._unless_changed([each]), (Put(each.item.key, values.encode(entry)),))

    def _unless_changed(self, entries: Sequence["_Entry"]) -> list[Compare]:
        """What every decision about objects rests on: they are as they were read, and nobody holds or has fenced us."""
        unchanged_entries = (unchanged(each.item.key, each.item.mod_revision) for each in entries)
        return [self._cluster.fence.compare(), absent(plans.HOLD), *unchanged_entries]

    async def _delete(self, doomed: Sequence["_Entry"]) -> int:
        """Of superseded objects: no commit can bring a segment into one, since it compares the entry."""
        if not doomed:
            return 0
        # Readers without a broker go by the manifests: those that tell where the records are now have to be there before.
        await self._ledger.write_pending()
        await self._lives.look_now()
        if not (await self._cluster.store.txn(self._unless_changed(doomed), ())).is_success:
            raise Concurrent("what was to be deleted has changed, or is held")
        # Bytes first: an entry without bytes is harmless, bytes without an entry are found only by listing.
        await self._blobs.delete([each.object.object_key for each in doomed])
        for each in doomed:
            await self._cluster.store.txn(
                (unchanged(each.item.key, each.item.mod_revision),), (Delete(only(each.item.key)),)
            )
            self._on_deleted(each.object.object_key)
            self._metrics.tier_deleted_objects_total += 1
        log.info("objects deleted", count=len(doomed))
        return len(doomed)

    async def collect_orphans(self) -> int:
        """Delete data objects of our lives that the metastore has never heard of: written after they were given up."""
        if not await self._may_collect():
            return 0
        before_ms = self._clock.now_ms() - self._settings.grace_ms
        listed = [info async for info in self._blobs.list(DATA) if info.modified_ms < before_ms]
        # Read after listing: an object prepared meanwhile is known by now.
        store = self._cluster.store
        known = {
            values.decode(pb.TierObject, item.value).object_key for item in (await read_all(store, keys.OBJECTS)).items
        }
        known |= await referenced_keys(store)
        orphans = [info.key for info in listed if info.key not in known and self._is_ours(info.key)]
        if orphans:
            await self._lives.look_now()
            await self._blobs.delete(orphans)
            log.info("orphans deleted", count=len(orphans))
        return len(orphans)

    def _is_ours(self, key: str) -> bool:
        """Whether a life of this metastore wrote it. Whoever else put something there may want it."""
        try:
            return self._lives.may_judge(object_id_of(key).life)
        except Invalid:
            return False


class _Entry(msgspec.Struct, frozen=True):
    """An object's entry in the metastore."""

    item: KeyValue
    object: pb.TierObject
