"""The tier of one broker, put together: what the node starts, stops, and introduces to the log.

Order at start: the topics' partitions exist, `load` tells them what object storage already has, the log replays its
WAL on top of that, `start` begins to upload. A fault (another incarnation of this broker, a bucket with another
history) ends all of it and is told to the node.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from headrace.blob.store import BlobStore
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock
from headrace.control.cluster import Cluster
from headrace.control.metastore import Metastore, Put
from headrace.errors import Fault, HeadraceError, StaleEpoch, StoreUnavailable, Unavailable
from headrace.file_range import OpenFile
from headrace.ids import BrokerEpoch, BrokerId
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger
from headrace.telemetry.metrics import Family, Metrics
from headrace.telemetry.problems import Problems
from headrace.tier.block_cache import BlockCache
from headrace.tier.carrier import Carrier
from headrace.tier.ceilings import BucketCeilings
from headrace.tier.commits import Commits, Sequencing
from headrace.tier.compactor import Compactor
from headrace.tier.damage import DamagedRanges
from headrace.tier.disk_cache import DiskCache
from headrace.tier.inventory import claim_bucket
from headrace.tier.keeping import Keeping
from headrace.tier.key_compactor import KeyCompactor
from headrace.tier.leaving import Leaving
from headrace.tier.ledger import Ledger
from headrace.tier.lives import Lives
from headrace.tier.metrics import TierMetrics
from headrace.tier.pace import Pace, PacedDownloads
from headrace.tier.plans import BUCKET, Author
from headrace.tier.reader import TierReader
from headrace.tier.rebuild import Rebuilder
from headrace.tier.ring_keeper import RingKeeper
from headrace.tier.segments import PartitionKey, SegmentTable
from headrace.tier.settings import TierSettings
from headrace.tier.skipping import Skipper
from headrace.tier.snapshots import Snapshots
from headrace.tier.states import BrokerStates
from headrace.tier.sweeper import Sweeper
from headrace.tier.takeover import Takeover
from headrace.tier.uploader import Uploader

_RESTART_S: Final = 1.0
_SHARED_STATE_MS: Final = 10_000
_SHARED_STATE_OBJECTS: Final = 256
"""Whoever takes partitions over asks every object since the newest state: there are never more, nor for longer."""
_SHARED_STATE_LOOK_S: Final = 1.0
_STATE_S: Final = 5.0
"""What saving the state may take at a stop: without it a restore reads more of the objects, and that is all."""

log = get_logger(__name__)


class Tier:
    def __init__(
        self,
        settings: TierSettings,
        *,
        blobs: BlobStore,
        cluster: Cluster,
        logs: LogStore,
        clock: Clock,
        author: Author,
        on_fault: Callable[[HeadraceError], None],
        is_store_down: Callable[[], bool] = lambda: False,
        bucket: str = "",
        problems: Problems,
        open_file: Callable[[str], OpenFile] | None = None,
        cache_directory: Path | None = None,
        chance: Chance = SYSTEM_CHANCE,
        keeping: Keeping | None = None,
        sequence: Sequencing | None = None,
    ) -> None:
        """`bucket` is the address of what `blobs` leads to. `open_file` opens an object where it is a file of this machine;
        where it is not, what is read may be kept in `cache_directory`."""
        self.metrics = TierMetrics()
        self.table = SegmentTable()
        self._settings = settings
        self._keeping = keeping or Keeping()
        self._blobs = blobs
        self._cluster = cluster
        self._logs = logs
        self._clock = clock
        self._on_fault = on_fault
        self._is_store_down = is_store_down
        self._cache = BlockCache(
            blobs,
            size_max=settings.cache_read_size_bytes,
            downloads=PacedDownloads(
                Pace(lag_ms_max=settings.read_pace_lag_ms, floor=settings.read_pace_bytes),
                concurrency=settings.read_concurrency,
                clock=clock,
                metrics=self.metrics,
                written_bytes=lambda: logs.wal.flushed_bytes_total,
            ),
            metrics=self.metrics,
            open_file=open_file,
            disk=self._disk_cache(cache_directory) if open_file is None else None,
        )
        self.damage = DamagedRanges(metrics=self.metrics, problems=problems, topic_name=self._topic_name)
        self.reader = TierReader(
            self.table,
            self._cache,
            read_ahead_bytes=settings.read_ahead_bytes,
            cache_bytes=settings.cache_read_size_bytes,
            metrics=self.metrics,
            log_start=self._log_start,
            memory_start=self._memory_start,
            damage=self.damage,
            inspection=logs.inspection,
        )
        self.lives = Lives(
            blobs,
            cluster.store,
            clock=clock,
            author=author,
            cluster_id=cluster.cluster_id,
            life=chance.randbytes(8).hex(),
        )
        self.commits = Commits(cluster, author, clock, self.table, life=self.lives.life, sequence=sequence)
        self.ledger = Ledger(
            blobs,
            cluster.store,
            clock=clock,
            metrics=self.metrics,
            problems=problems,
            rebuild=Rebuilder(blobs=blobs, store=cluster.store, cluster_id=cluster.cluster_id, logs=logs).rebuild,
            keeping=self._keeping,
        )
        self.commits.on_manifest = self.ledger.wake
        self.commits.on_settled = self._note_settled
        carrier = Carrier(
            blobs=blobs,
            commits=self.commits,
            clock=clock,
            metrics=self.metrics,
            lives=self.lives,
            on_uploaded=self._cache.note_footer,
            has_states=not self._keeping.is_alone,
        )
        self.uploader = Uploader(
            settings,
            carrier=carrier,
            commits=self.commits,
            logs=logs,
            clock=clock,
            is_store_down=is_store_down,
            window_ms=self._keeping.window_ms,
        )
        self.ring_keeper = RingKeeper(
            settings,
            logs=logs,
            clock=clock,
            metrics=self.metrics,
            is_store_down=is_store_down,
            is_refused=self.uploader.is_refused,
        )
        self.uploader.on_round = self.ring_keeper.wake
        self.sweeper = Sweeper(
            settings,
            blobs=blobs,
            cluster=cluster,
            commits=self.commits,
            ledger=self.ledger,
            lives=self.lives,
            logs=logs,
            table=self.table,
            clock=clock,
            metrics=self.metrics,
            on_deleted=self._cache.forget,
            keeping=self._keeping,
        )
        self.compactor = Compactor(
            settings,
            blobs=blobs,
            commits=self.commits,
            logs=logs,
            table=self.table,
            metrics=self.metrics,
            has_states=not self._keeping.is_alone,
        )
        self.key_compactor = KeyCompactor(
            settings,
            blobs=blobs,
            compactor=self.compactor,
            cache=self._cache,
            logs=logs,
            table=self.table,
            clock=clock,
            metrics=self.metrics,
        )
        self.skipper = Skipper(
            blobs=blobs, table=self.table, compactor=self.compactor, store=cluster.store, clock=clock
        )
        self.states = BrokerStates(blobs, logs, BrokerId(author.number), BrokerEpoch(author.epoch))
        self.takeover = Takeover(blobs, self.table, self.states)
        self.snapshots = Snapshots(blobs, cluster.store)
        self.ceilings = BucketCeilings(blobs, clock, author, problems)
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._bucket = bucket
        self._is_bucket_met = False

    def _disk_cache(self, directory: Path | None) -> DiskCache | None:
        if directory is None or not self._settings.cache_disk_bytes:
            return None
        return DiskCache(directory, bytes_max=self._settings.cache_disk_bytes, metrics=self.metrics)

    async def load(self) -> None:
        """Own the bucket, learn what it holds, and tell the partitions. Before the log recovers.

        A bucket that was ours before may be out of reach: the metastore knows what it holds, and `start` goes on trying.
        """
        try:
            await self._meet_bucket()
        except StoreUnavailable as error:
            if not await is_claimed(self._cluster.store, self._bucket):
                raise
            log.warning("started without the object store", reason=str(error))
        if self._keeping.is_alone:
            await self.commits.load()
            for partition in self._logs.partitions():
                self._prime(partition)
        self._logs.remote = self.reader
        self._logs.upload_wanted = self.uploader.want_commit
        self._logs.space_wanted = self._want_space

    async def adopt(self, partitions: Sequence[PartitionLog]) -> None:
        """Tell partitions that this broker has been given, and does not lead yet, what object storage has of their producers.

        After `learn`.
        """
        # What their former leader has committed and not written yet: readers without a broker wait for it, nobody else.
        self.ledger.look_soon()
        await self.takeover.adopt(partitions)

    async def learn(self, partitions: Sequence[PartitionLog]) -> None:
        """Tell partitions how far object storage has them, as the metastore knows it. The store need not be there."""
        await self.commits.adopt([(each.topic_id, each.index) for each in partitions])
        for partition in partitions:
            self._prime(partition)

    def forget_partition(self, partition: PartitionLog) -> None:
        """It is led elsewhere now."""
        self.commits.forget((partition.topic_id, partition.index))

    async def _meet_bucket(self) -> None:
        await claim_bucket(self._blobs, self._cluster.cluster_id)
        await self.ledger.load()
        await self.lives.begin()
        await self.ledger.write_pending()
        self._is_bucket_met = True
        if self._bucket and not await is_claimed(self._cluster.store, self._bucket):
            await self._cluster.store.txn((), (Put(BUCKET, self._bucket.encode()),))

    async def _await_bucket(self) -> None:
        while not self._is_bucket_met:
            try:
                await self._meet_bucket()
            except Unavailable:
                await asyncio.sleep(_RESTART_S)

    def _want_space(self) -> None:
        self.uploader.want_space()
        self.ring_keeper.wake()

    def _prime(self, partition: PartitionLog) -> None:
        place = (partition.topic_id, partition.index)
        end = max(self.table.end_offset(place), self.commits.tail_start(place), partition.log_start)
        partition.uploaded_end = max(partition.uploaded_end, end)
        partition.end_offset = max(partition.end_offset, end)
        partition.durable_end = max(partition.durable_end, end)
        partition.high_watermark = max(partition.high_watermark, end)

    def _note_settled(self, place: PartitionKey) -> None:
        """A commit may have come about that nobody could tell the log of."""
        partition = self._logs.find(*place)
        if partition is not None and not partition.removed:
            partition.mark_uploaded(max(self.table.end_offset(place), self.commits.tail_start(place)))

    async def start(self, *, is_ring_lost: bool = False) -> None:
        """Begin to upload and keep house. After the log has recovered; `is_ring_lost` when it could not recover all."""
        await self.states.restore(is_ring_lost=is_ring_lost)
        if not self._is_bucket_met:
            self.ceilings.fall_behind("it was not there when this broker started")
        self._task = asyncio.ensure_future(self._run())

    async def stop(self, *, tail_ms: int = 0) -> None:
        """End all work; with `tail_ms`, first upload what only this disk has, for so long at most.

        What is half done at the end goes back to the WAL at the next start.
        """
        if tail_ms and self._task is not None:
            await self._leave(tail_ms)
        await self._end_work()
        await self._cache.close()

    def hurry(self) -> None:
        """Whoever has asked for a `stop` waits no longer for the tail."""
        if self._leaving is not None:
            self._leaving.cancel()

    async def _leave(self, tail_ms: int) -> None:
        leaving = Leaving(
            uploader=self.uploader,
            ledger=self.ledger,
            logs=self._logs,
            is_store_down=self._is_out_of_reach,
            allowed_ms=tail_ms,
        )
        self._leaving = asyncio.ensure_future(self._upload_and_save(leaving))
        await asyncio.wait({self._leaving}, timeout=tail_ms / 1000)
        self._leaving.cancel()
        (failure,) = await asyncio.gather(self._leaving, return_exceptions=True)
        if isinstance(failure, Exception):
            log.error("the tail could not be uploaded", reason=str(_fault_in(failure) or failure))
        leaving.report()

    async def _upload_and_save(self, leaving: Leaving) -> None:
        await leaving.upload_tail()
        await self._end_work()  # Checkpoints are the ring keeper's as long as it runs.
        if self._is_out_of_reach():
            return
        try:
            async with asyncio.timeout(_STATE_S):
                await self._logs.checkpoint()
                await self.save_state()
        except (Unavailable, TimeoutError) as error:
            log.warning("the broker's state was not saved to the object store", reason=str(error))

    def _is_out_of_reach(self) -> bool:
        return not self._is_bucket_met or self._is_store_down()

    async def _end_work(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def forget_topic(self, topic_id: bytes) -> None:
        """A topic was deleted; `Topics.on_removed` calls this."""
        self.commits.forget_topic(topic_id)

    def partition_named(self, topic: str, index: int) -> PartitionLog | None:
        return next((each for each in self._logs.partitions() if (each.topic_name, each.index) == (topic, index)), None)

    def forget_mended(self) -> None:
        """Damage is over, too, when no segment refers to the object any more: merged, skipped, or deleted with its records."""
        self.damage.forget(
            lambda each: (segment := self.table.at(each.place, each.base_offset)) is None or segment.key != each.key
        )

    def register_metrics(self, metrics: Metrics) -> None:
        metrics.register(self.metrics)
        metrics.register_family(
            Family(
                name="headrace_exposure_bytes",
                sentence="Bytes that only this broker's disk has, by partition.",
                labels=("topic", "partition"),
                samples=lambda: [
                    ((p.topic_name, str(p.index)), float(size))
                    for p in self._logs.partitions()
                    if (size := p.unuploaded_bytes)
                ],
            )
        )
        metrics.register_family(
            Family(
                name="headrace_exposure_ms",
                sentence="Age of the oldest record that only this broker's disk has, by partition.",
                labels=("topic", "partition"),
                samples=lambda: [
                    ((p.topic_name, str(p.index)), float(max(0, self._clock.now_ms() - since)))
                    for p in self._logs.partitions()
                    if (since := p.unuploaded_since_ms) is not None
                ],
            )
        )

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervise("ring keeper", self.ring_keeper.run))
            await self._supervise("bucket", self._await_bucket)
            if not self._is_bucket_met:
                return  # It is not ours, and the node has been told.
            group.create_task(self._supervise("ceilings", self.ceilings.run))
            group.create_task(self._supervise("uploader", self.uploader.run))
            group.create_task(self._supervise("ledger", self.ledger.run))
            group.create_task(self._supervise("lives", self.lives.run))
            group.create_task(self._supervise("sweeper", self.sweeper.run))
            group.create_task(self._supervise("compactor", self._run_compaction))
            group.create_task(self._supervise("snapshots", self._run_snapshots))
            if not self._keeping.is_alone:
                group.create_task(self._supervise("states", self._run_states))

    async def _run_compaction(self) -> None:
        """Both kinds in one task: they replace the same segments, and would only take them from each other."""
        while True:
            await asyncio.sleep(self._settings.sweep_interval_ms / 1000)
            await self.key_compactor.run_once()
            await self.compactor.run_once()
            await self.compactor.free_dead()

    async def _run_snapshots(self) -> None:
        while True:
            await asyncio.sleep(self._settings.snapshot_interval_ms / 1000)
            try:
                await self.save_state()
            except Unavailable as error:
                log.warning("snapshot put off", reason=str(error))

    async def save_state(self) -> None:
        """Copy to the bucket what a new disk would need: the log's newest checkpoint, and the metastore."""
        await self.states.save()
        if self._keeping.is_keeper():
            await self.snapshots.save()

    async def _run_states(self) -> None:
        """For whoever takes this broker's partitions over."""
        saved_ms, saved_objects = self._clock.monotonic_ms(), 0
        while True:
            await asyncio.sleep(_SHARED_STATE_LOOK_S)
            now_ms, objects = self._clock.monotonic_ms(), self.metrics.tier_uploaded_objects_total
            if now_ms - saved_ms < _SHARED_STATE_MS and objects - saved_objects < _SHARED_STATE_OBJECTS:
                continue
            saved_ms, saved_objects = now_ms, objects
            try:
                await self.save_shared_state()
            except Unavailable as error:
                log.warning("the broker's state is saved later", reason=str(error))

    async def save_shared_state(self) -> None:
        """What this broker knows of producers and transactions now."""
        await self._logs.checkpoint()
        await self.states.save()

    async def _supervise(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run for ever. A fault is the node's to deal with; anything else is logged and tried again."""
        while True:
            try:
                return await work()
            except Exception as error:
                if self._logs.wal.failure is not None:
                    return None  # The node has heard of it from the log, and stops.
                fault = _fault_in(error)
                if fault is not None:
                    log.error("the tier has stopped", part=name, reason=str(fault))
                    self._on_fault(fault)
                    return None
                if _is_only_unavailable(error):
                    # The metastore of a cluster is on other machines: that it is away is nothing unheard of.
                    log.warning("a part of the tier waits for the metastore", part=name, reason=str(error))
                else:
                    log.exception("a part of the tier failed and is started again", part=name)
            await asyncio.sleep(_RESTART_S)

    def _topic_name(self, place: PartitionKey) -> str:
        partition = self._logs.find(*place)
        return partition.topic_name if partition is not None else place[0].hex()

    def _log_start(self, place: PartitionKey) -> int:
        partition = self._logs.find(*place)
        return partition.log_start if partition is not None else 0

    def _memory_start(self, place: PartitionKey) -> int | None:
        partition = self._logs.find(*place)
        return partition.memory_start if partition is not None else None


async def is_claimed(store: Metastore, bucket: str) -> bool:
    """Whether this cluster has claimed the bucket at this address before."""
    known = await store.get(BUCKET)
    return known is not None and known.value == bucket.encode()


def _is_only_unavailable(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return all(map(_is_only_unavailable, error.exceptions))
    return isinstance(error, Unavailable)


def _fault_in(error: Exception) -> HeadraceError | None:
    """The fault that a task group wrapped, if it is one."""
    if isinstance(error, ExceptionGroup):
        return next((fault for each in error.exceptions if (fault := _fault_in(each)) is not None), None)
    return error if isinstance(error, Fault | StaleEpoch) else None
