"""A broker's storage without doors: metastore, WAL, tier and topics over any object store, to be stopped and restarted.

`stop` ends it cleanly; `crash` leaves everything as a killed process would, but for what the operating system keeps.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import BlobStore
from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acks, Produce
from headrace.broker.topics import Topics
from headrace.clock import Clock, SystemClock
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Metastore
from headrace.control.revision_mark import FILE_NAME as MARK_FILE
from headrace.errors import HeadraceError
from headrace.log.partition import Appended, PartitionLog
from headrace.log.settings import LogSettings
from headrace.log.store import LogStore
from headrace.node.lead import Lead
from headrace.node.metastore import METASTORE_FILE
from headrace.records.batch import Buffer, bytes_of
from headrace.records.record import NewRecord, Record, read_records
from headrace.telemetry.problems import Problems
from headrace.tier.format.plan import plan
from headrace.tier.inventory import load_inventory
from headrace.tier.keeping import Keeping
from headrace.tier.plans import Author
from headrace.tier.service import Tier
from headrace.tier.settings import TierSettings

MIB = 1024 * 1024
QUIET = TierSettings(upload_interval_ms=3_600_000, sweep_interval_ms=3_600_000, snapshot_interval_ms=86_400_000)
"""Nothing happens by itself: the test says when."""


@dataclass
class TierNode:
    directory: Path
    blobs: BlobStore = field(default_factory=lambda: MemoryBlobStore(SystemClock()))
    settings: TierSettings = QUIET
    wal_bytes: int = 64 * MIB
    spill_bytes: int = 0
    clock: Clock = field(default_factory=SystemClock)
    faults: list[HeadraceError] = field(default_factory=list)
    is_running_tier: bool = True
    name: str = "node"
    problems: Problems = field(default_factory=Problems)
    is_marked: bool = False
    """Whether the metastore has its mark beside the ring, as that of a real node has."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Broker-wide topic config."""
    wrap: Callable[[Metastore], Metastore] = lambda store: store
    """Puts something between the tier and the metastore."""
    keeping: Keeping | None = None

    async def start(self) -> "TierNode":
        self.directory.mkdir(parents=True, exist_ok=True)
        self.metastore = await EmbeddedMetastore.open(
            self.directory / METASTORE_FILE,
            clock=self.clock,
            mark=self.directory / "wal" / MARK_FILE if self.is_marked else None,
        )
        self.cluster = await Cluster.load(self.wrap(self.metastore), self.clock)
        registered = await self.cluster.register(self.name, pb.BrokerRegistration())
        self.logs = LogStore(
            LogSettings(
                wal_path=str(self.directory / "wal"),
                wal_capacity_bytes=self.wal_bytes,
                wal_spill_bytes=self.spill_bytes,
                cache_write_size_bytes=16 * MIB,
            ),
            data_dir=self.directory,
            on_fault=self.faults.append,
        )
        self.topics = Topics(self.cluster, self.logs, defaults=self.defaults)
        self.topics.load()
        self.tier = Tier(
            self.settings,
            blobs=self.blobs,
            cluster=self.cluster,
            logs=self.logs,
            clock=self.clock,
            author=Author(self.name, registered.numeric_id, registered.broker_epoch),
            on_fault=self.faults.append,
            bucket="the bucket of this test",
            problems=self.problems,
            keeping=self.keeping,
        )
        await self.tier.load()
        self.logs.recover()
        self.lead = Lead(
            self.name,
            cluster=self.cluster,
            store=self.logs,
            topics=self.topics,
            clock=self.clock,
            problems=self.problems,
        )
        await self.lead.take()
        self.logs.start()
        await self.lead.close_gaps()
        self.topics.on_removed.append(lambda topic: self.tier.forget_topic(topic.id))
        self.produce = Produce(self.logs, self.clock)
        if self.is_running_tier:
            await self.tier.start(is_ring_lost=self.lead.is_ring_lost)
            self.topics.ceilings.bucket = self.tier.ceilings
        await self.lead.settle()
        return self

    async def stop(self) -> None:
        await self.topics.ceilings.stop()
        await self.tier.stop()
        await self.logs.stop()
        await self.lead.leave()
        await self.metastore.close()

    async def crash(self) -> None:
        """Leave without a checkpoint or a goodbye; what was acknowledged is on disk, nothing else counts."""
        await self.topics.ceilings.stop()
        await self.tier.stop()
        await self.lead.rest()
        await self.logs.wal.stop()
        self.logs.file.close()
        await self.metastore.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def append(self, partition: PartitionLog, *values: str, key: str | None = None, at_ms: int = 0) -> Appended:
        """One batch, acknowledged."""
        return await self.send(partition, *values, key=key, at_ms=at_ms)

    def send(self, partition: PartitionLog, *values: str, key: str | None = None, at_ms: int = 0) -> Deferred[Appended]:
        records = [
            NewRecord(value=value.encode(), key=key.encode() if key else None, timestamp_ms=at_ms or None)
            for value in values
        ]
        return self.produce.append_records(partition, records, acks=Acks.ALL)

    async def upload(self) -> None:
        await self.tier.uploader.upload_round()
        await self.tier.ring_keeper.keep()
        await self.tier.ledger.write_pending()

    async def save_state(self) -> None:
        await self.logs.checkpoint()
        await self.tier.save_state()


async def read_tier(node: TierNode, partition: PartitionLog, start: int = 0, *, max_bytes: int = MIB) -> list[Record]:
    """Everything object storage has of a partition from `start` on, read as a fetch would, page by page."""
    found: list[Record] = []
    offset = start
    while offset < partition.uploaded_end:
        pieces = await node.tier.reader.read(
            partition.topic_id, partition.index, offset=offset, end_offset=partition.uploaded_end, max_bytes=max_bytes
        )
        page = records_of([bytes_of(piece) for piece in pieces])
        if not page:
            break
        found += [record for record in page if record.offset >= offset]
        offset = page[-1].offset + 1
    return found


async def read_all(partition: PartitionLog) -> list[Record]:
    """Every readable record, wherever it lies, as a consumer that starts at the beginning would get it."""
    found: list[Record] = []
    offset = partition.log_start
    while offset < partition.high_watermark:
        if partition.is_hot(offset):
            buffers: list[Buffer] = list(
                partition.read_tail(offset, MIB, partition.high_watermark, at_least_one=True).slices
            )
        else:
            buffers = await partition.read_cold(offset, MIB, partition.high_watermark)
        page = [record for record in records_of(buffers) if record.offset >= offset]
        if not page:
            break
        found += page
        offset = page[-1].offset + 1
    return found


async def read_bucket(blobs: BlobStore, topic: str, partition: int) -> list[Record]:
    """Every committed record, from the bucket alone: manifests, plan, objects."""
    inventory = await load_inventory(blobs)
    state = inventory.partition(inventory.topic_named(topic).topic_id, partition)
    found: list[Record] = []
    for planned in plan(state):
        data = await blobs.get_range(planned.key, planned.position, planned.length)
        found += [record for record in records_of([data]) if planned.start <= record.offset < planned.end]
    return found


def records_of(buffers: list[Buffer]) -> list[Record]:
    return [record for buffer in buffers for record in read_records(buffer)]


def values_of(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


async def eventually(condition, deadline_s: float = 60.0) -> None:  # type: ignore[no-untyped-def]  # any callable
    end = asyncio.get_running_loop().time() + deadline_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it did not happen in time"
        await asyncio.sleep(0.005)
