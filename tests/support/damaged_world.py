"""A node's whole world, its directory and its bucket: made once, copied for each case, and damaged there.

`build` makes one with every kind of file a node keeps, as a killed process leaves them, and beside it a copy of itself from
an earlier day. What was acknowledged is in its `History`, and where each record lies is known, so that a judge can tell
which records a damaged file may cost.
"""

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store
from tests.support.checker import History, Place
from tests.support.object_stores import BUCKET, S3Server
from tests.support.tier_node import TierNode

from headrace.blob.local import LocalBlobStore
from headrace.blob.open import bare_store
from headrace.blob.store import BlobStore
from headrace.clock import SystemClock
from headrace.control.keys import broker_ring
from headrace.control.metastore import Put
from headrace.log.spill.spiller import Spiller
from headrace.log.store import LogStore
from headrace.tier.inventory import load_inventory

TOPIC: Final = "orders"
PLACES: Final[tuple[Place, ...]] = ((TOPIC, 0), (TOPIC, 1))
PADDING: Final = 2000
"""Of each record, so that every place in a file that is hit by chance holds something."""
Records = set[tuple[Place, int]]


@dataclass
class Bucket:
    """The objects below one prefix, past everything headrace knows about them."""

    store: ObjectStore

    def names(self, prefix: str = "") -> list[str]:
        found = [meta["path"] for page in obstore.list(self.store) for meta in page]
        return sorted(key for key in found if key.startswith(prefix) and not key.startswith("probe/"))

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self.store, key).bytes())

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.store, key, data)

    def delete(self, key: str) -> None:
        obstore.delete(self.store, key)


@dataclass
class Stores:
    """Where buckets come from: directories of the node, or prefixes of an S3 server."""

    server: S3Server | None = None
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def new_prefix(self) -> str:
        return f"damage-{next(self._numbers)}"

    def settings(self, prefix: str) -> Mapping[str, object]:
        if self.server is None:
            return {}
        return {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": self.server.endpoint,
            "object_store.s3.prefix": prefix,
        }

    def blobs(self, data_dir: Path, prefix: str) -> BlobStore:
        if self.server is None:
            return LocalBlobStore(data_dir / "objects")
        return bare_store(self.server.settings(prefix), SystemClock())

    def bucket(self, data_dir: Path, prefix: str) -> Bucket:
        if self.server is None:
            return Bucket(LocalStore(data_dir / "objects"))
        config = {"endpoint": self.server.endpoint, "region": "us-east-1"}
        return Bucket(S3Store(BUCKET, prefix=prefix, config=config, client_options={"allow_http": True}))


@dataclass
class World:
    """One data directory with its bucket, and what was promised by whoever wrote it."""

    stores: Stores
    data_dir: Path
    prefix: str
    history: History
    older: Path
    """The directory as it was on an earlier day."""
    only_in_ring: Records = field(default_factory=set)
    only_in_spill: Records = field(default_factory=set)
    by_object: dict[str, Records] = field(default_factory=dict)

    @property
    def bucket(self) -> Bucket:
        return self.stores.bucket(self.data_dir, self.prefix)

    def copied(self, directory: Path) -> "World":
        prefix = self.stores.new_prefix()
        shutil.copytree(self.data_dir, directory)
        if self.stores.server is not None:
            here, there = self.bucket, self.stores.bucket(directory, prefix)
            for key in here.names():
                there.put(key, here.get(key))
        return replace(self, data_dir=directory, prefix=prefix, history=self.history.fork())


async def build(directory: Path, stores: Stores, *, name: str, values: str) -> World:
    """A world of the cluster that the broker `name` leads alone, all its values beginning with `values`."""
    data_dir, prefix = directory / "running", stores.new_prefix()
    data_dir.mkdir(parents=True)
    (data_dir / "broker.id").write_text(f"{name}\n")
    world = World(stores, directory / "world", prefix, History(0), directory / "older")
    node = TierNode(data_dir, stores.blobs(data_dir, prefix), name=name, spill_bytes=1 << 30, is_marked=True)
    await node.start()
    # As a real node does at its first start.
    await node.metastore.txn((), (Put(broker_ring(name), node.logs.ring_id),))
    await node.topics.create(TOPIC, partitions=len(PLACES))
    writer = _Writer(node, world, values)
    for _ in range(3):
        await writer.write(6)
        await node.upload()
    await node.tier.ledger.fold()
    await node.save_state()
    # Stopped once, so that the metastore's file holds something, and its journal only what came since.
    await node.stop()
    shutil.copytree(data_dir, world.older)
    await node.start()
    for _ in range(3):
        await writer.write(6)
        await node.upload()
    await node.save_state()
    await node.logs.trim()
    world.only_in_spill = await writer.write(6)
    await _spill_all(node.logs)
    world.only_in_ring = await writer.write(6)
    world.by_object = await _records_by_object(node.blobs)
    # What a kill leaves: the metastore's journal is there, the log has no end mark.
    shutil.copytree(data_dir, world.data_dir)
    await node.crash()
    await node.blobs.close()
    shutil.rmtree(data_dir)
    return world


@dataclass
class _Writer:
    node: TierNode
    world: World
    values: str
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def write(self, count: int) -> Records:
        written: Records = set()
        for place in PLACES:
            partition = self.node.topics.partition(*place)
            for _ in range(count):
                value = f"{self.values} {next(self.numbers)} ".ljust(PADDING, ".")
                appended = await self.node.append(partition, value)
                self.world.history.note_acked(*place, appended.base_offset, [value.encode()])
                written.add((place, appended.base_offset))
        return written


async def _spill_all(logs: LogStore) -> None:
    spiller = Spiller(logs)
    while await spiller.spill(logs.wal.durable_lsn):
        pass
    await logs.trim()


async def _records_by_object(blobs: BlobStore) -> dict[str, Records]:
    inventory = await load_inventory(blobs)
    found: dict[str, Records] = {}
    for state in inventory.partitions.values():
        for segment in state.segments:
            offsets = range(segment.base_offset, segment.end_offset)
            found.setdefault(segment.key, set()).update(((TOPIC, state.partition), offset) for offset in offsets)
    return found
