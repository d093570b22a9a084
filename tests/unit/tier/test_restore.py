"""Nothing but the bucket is left: an empty disk, or an empty metastore, or both."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_all, read_tier, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer, ObjectInfo
from headrace.chance import SYSTEM_CHANCE
from headrace.clock import SystemClock
from headrace.control import keys
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Put
from headrace.errors import Conflict, Corrupted, ResourceNotFound, StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.node.metastore import METASTORE_FILE
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.tier import plans
from headrace.tier.restore import restore_metastore
from headrace.tier.snapshots import newest_snapshot
from headrace.transforms.modules import Modules, ids_in


async def test_empty_disk_serves_every_committed_record(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a", "b")
    await node.upload()
    await node.stop()
    shutil.rmtree(tmp_path / "wal")
    await node.start()
    partition = node.topics.partition("t", 0)
    assert values_of(await read_tier(node, partition)) == ["a", "b"]
    assert (await node.append(partition, "c")).base_offset >= 2
    await node.stop()


@pytest.mark.trap(16)
@pytest.mark.parametrize("is_state_saved", [True, False])
async def test_no_reader_is_sent_back_by_a_lost_disk(tmp_path: Path, is_state_saved: bool) -> None:
    """What a killed life wrote was uploaded by the next: a reader of it asks where its epoch ended."""
    node = await TierNode(tmp_path).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    first = partition.leader_epoch
    await node.append(partition, "a", "b")
    await node.crash()
    await node.start()
    partition = node.topics.partition("t", 0)
    second = partition.leader_epoch
    await node.append(partition, "c")
    await node.upload()
    if is_state_saved:
        await node.save_state()
    await node.stop()
    shutil.rmtree(tmp_path / "wal")
    await node.start()
    partition = node.topics.partition("t", 0)
    for _ in range(2):
        for epoch, written_end in ((first, 2), (second, 3)):
            end = partition.end_of_epoch(epoch)
            assert end is not None
            assert written_end <= end.start_offset <= partition.high_watermark
        assert partition.epoch_at(0) == (first if is_state_saved else -1)
        await node.append(partition, "d")
    await node.stop()


async def crash_without_checkpoint(node: TierNode) -> None:
    await node.crash()
    (node.directory / "wal" / "checkpoint").unlink()


def transactional(value: bytes, producer_id: int, *, sequence: int = 0) -> bytearray:
    return build_batch(
        [NewRecord(value=value)],
        now_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


async def end_transaction(node: TierNode, partition: PartitionLog, producer_id: int, *, is_commit: bool) -> None:
    marker = build_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, now_ms=1)
    await node.produce.append_marker(partition, marker)


@pytest.mark.parametrize("is_state_saved", [True, False])
async def test_transactions_opened_since_the_saved_state_are_still_open_after_a_lost_disk(
    tmp_path: Path, is_state_saved: bool
) -> None:
    """Otherwise a read_committed reader would get records that are aborted a moment later."""
    node = await TierNode(tmp_path).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    partition.append(transactional(b"open at the saved state, committed since", 6), now_ms=1)
    await node.upload()
    if is_state_saved:
        await node.save_state()
    partition.append(transactional(b"committed", 7), now_ms=1)
    partition.append(transactional(b"open", 8), now_ms=1)
    partition.append(transactional(b"aborted", 9), now_ms=1)
    await end_transaction(node, partition, 6, is_commit=True)
    await end_transaction(node, partition, 7, is_commit=True)
    await end_transaction(node, partition, 9, is_commit=False)
    partition.append(transactional(b"still open", 8, sequence=1), now_ms=1)
    await node.append(partition, "no transaction")
    await node.upload()
    await node.stop()
    shutil.rmtree(tmp_path / "wal")
    for _ in range(2):  # The second time from a WAL that is not lost, and has no checkpoint any more.
        await node.start()
        partition = node.topics.partition("t", 0)
        assert partition.high_watermark >= 9
        assert partition.last_stable_offset == 2
        assert partition.transactions is not None
        assert [(each.producer_id, each.first_offset) for each in partition.transactions.open_transactions()] == [
            (8, 2)
        ]
        assert [each.producer_id for each in partition.aborted_between(0, 9)] == [9]
        await crash_without_checkpoint(node)
    await node.start()
    partition = node.topics.partition("t", 0)
    await end_transaction(node, partition, 8, is_commit=True)
    assert partition.last_stable_offset == partition.high_watermark
    await crash_without_checkpoint(node)
    await node.start()
    partition = node.topics.partition("t", 0)
    assert partition.last_stable_offset == partition.high_watermark, "the marker is in the WAL, not yet in the bucket"
    await node.stop()


async def test_aborted_transactions_and_producers_survive_an_empty_disk(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    batch = build_batch(
        [NewRecord(value=b"never mind")],
        now_ms=node.clock.now_ms(),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    partition.append(batch, now_ms=node.clock.now_ms())
    marker = build_marker(is_commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, now_ms=1)
    await node.produce.append_marker(partition, marker)
    await node.upload()
    await node.save_state()
    await node.stop()
    shutil.rmtree(tmp_path / "wal")
    await node.start()
    partition = node.topics.partition("t", 0)
    assert [(a.producer_id, a.first_offset) for a in partition.aborted_between(0, 2)] == [(7, 0)]
    assert partition.append(batch, now_ms=node.clock.now_ms()).is_duplicate
    await node.crash()
    await node.start()
    partition = node.topics.partition("t", 0)
    assert [(a.producer_id, a.first_offset) for a in partition.aborted_between(0, 2)] == [(7, 0)]
    assert partition.append(batch, now_ms=node.clock.now_ms()).is_duplicate
    await node.stop()


async def test_a_wal_without_checkpoint_is_not_told_twice_what_it_knows(tmp_path: Path) -> None:
    """Its checkpoint was damaged: the WAL has the whole transaction, and so have the manifests."""
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    batch = build_batch(
        [NewRecord(value=b"x")], now_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    partition.append(batch, now_ms=node.clock.now_ms())
    marker = build_marker(is_commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, now_ms=1)
    await node.produce.append_marker(partition, marker)
    await node.upload()
    for _ in range(2):
        await crash_without_checkpoint(node)
        await node.start()
        partition = node.topics.partition("t", 0)
        assert [(a.producer_id, a.first_offset) for a in partition.aborted_between(0, 2)] == [(7, 0)]
        assert partition.last_stable_offset == partition.high_watermark == 2
    await node.stop()


class FailingStore(MemoryBlobStore):
    """Answers nobody while it is down."""

    is_down = False

    async def get(self, key: str) -> Buffer:
        self._check()
        return await super().get(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        self._check()
        async for info in super().list(prefix, after=after):
            yield info

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("503")


async def test_a_wal_without_checkpoint_needs_no_store_before_the_first_upload(tmp_path: Path) -> None:
    blobs = FailingStore(SystemClock())
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, "a")
    await crash_without_checkpoint(node)
    node.is_running_tier = False
    await node.start()
    blobs.is_down = True
    await node.tier.start()
    assert values_of(await read_all(node.topics.partition("t", 0))) == ["a"]
    await node.stop()


async def test_a_node_that_has_started_once_needs_no_store_for_its_next_start(tmp_path: Path) -> None:
    """Also after a lost disk: what was learnt from the bucket is on the new one before anybody is served."""
    blobs = FailingStore(SystemClock())
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    batch = transactional(b"x", 7)
    partition.append(batch, now_ms=node.clock.now_ms())
    await end_transaction(node, partition, 7, is_commit=False)
    await node.upload()
    await node.save_state()
    await node.crash()
    shutil.rmtree(tmp_path / "wal")
    await node.start()
    await node.crash()
    node.is_running_tier = False
    await node.start()
    blobs.is_down = True
    await node.tier.start()
    partition = node.topics.partition("t", 0)
    assert [a.producer_id for a in partition.aborted_between(0, 2)] == [7]
    assert partition.append(batch, now_ms=node.clock.now_ms()).is_duplicate
    await node.stop()


async def test_a_lost_disk_and_a_store_that_is_down_are_refused_with_the_reason(tmp_path: Path) -> None:
    blobs = FailingStore(SystemClock())
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, "a")
    await node.upload()
    await node.stop()
    shutil.rmtree(tmp_path / "wal")
    node.is_running_tier = False
    await node.start()
    blobs.is_down = True
    with pytest.raises(StoreUnavailable, match=r"only the object store knows .* start it when the store is up \(503\)"):
        await node.tier.start()
    await node.stop()


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_metastore_is_rebuilt_from_the_bucket_alone(tmp_path: Path, has_snapshot: bool) -> None:
    node = await TierNode(tmp_path / "first").start()
    topic = await node.topics.create("t", partitions=2, config={"retention.ms": "-1"})
    await node.topics.create("empty", partitions=1)
    for partition in topic.partitions:
        await node.append(partition, "a", "b", "c")
    await node.upload()
    if has_snapshot:
        await node.save_state()
    await node.append(topic.partitions[0], "after the snapshot")
    await node.upload()
    await node.topics.delete_records("t", 0, 1)
    await node.tier.sweeper.sweep()
    await node.tier.ledger.write_pending()
    cluster_id = node.cluster.cluster_id
    await node.stop()

    (tmp_path / "second").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "second" / METASTORE_FILE)
    restored = await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    assert (restored.cluster_id, restored.is_from_snapshot) == (cluster_id, has_snapshot)
    with pytest.raises(Conflict):
        await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    await store.close()

    again = await TierNode(tmp_path / "second", node.blobs).start()
    assert again.cluster.cluster_id == cluster_id
    assert (again.topics.find("empty") is not None) == has_snapshot
    first, second = again.topics.get("t").partitions
    assert again.topics.get("t").overrides == {"retention.ms": "-1"}
    assert again.topics.get("t").id == topic.id
    assert first.log_start == 1
    assert values_of(await read_tier(again, first, 1)) == ["b", "c", "after the snapshot"]
    assert values_of(await read_tier(again, second)) == ["a", "b", "c"]
    assert await again.metastore.get(plans.HOLD) is not None
    await again.append(second, "new")
    await again.upload()
    assert values_of(await read_tier(again, second)) == ["a", "b", "c", "new"]
    await again.stop()


async def test_a_restored_metastore_gives_no_version_of_a_module_a_second_time(tmp_path: Path) -> None:
    """Neither of one that the snapshot knows of, nor of ones that were uploaded after it."""
    node = await TierNode(tmp_path / "first").start()
    modules = Modules(node.cluster, node.blobs, node.clock, SYSTEM_CHANCE)
    await modules.add("known", b"1", takes_batches=True)
    await node.save_state()
    given = {(await modules.add(name, b"2", takes_batches=True)).id for name in ("known", "later", "assigned")}
    assert given == {"known_v2", "later_v1", "assigned_v1"}
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a")
    await node.topics.alter_config("t", lambda known: {**known, "wasm.module.id": "assigned_v1"})
    await node.upload()
    await node.tier.ledger.write_pending()
    # Bytes that no entry names may be collected; what the topic has is in the manifest.
    await node.blobs.delete([(await modules.get("assigned_v1")).object_key])
    await node.stop()

    (tmp_path / "second").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "second" / METASTORE_FILE)
    found = await ids_in(node.blobs)
    assert found == {"known_v1", "known_v2", "later_v1"}
    await restore_metastore(node.blobs, store, leader="node", clock=node.clock, module_ids=found)
    await store.close()

    again = await TierNode(tmp_path / "second", node.blobs).start()
    modules = Modules(again.cluster, again.blobs, again.clock, SYSTEM_CHANCE)
    assert [each.id for each in await modules.all()] == ["known_v1"]
    for name in ("known", "later", "assigned"):
        assert int((await modules.add(name, b"other", takes_batches=True)).version.removeprefix("v")) > 1000
    assert again.topics.get("t").overrides["wasm.module.id"] == "assigned_v1", "it waits for another module"
    with pytest.raises(ResourceNotFound):
        await modules.get("assigned_v1")
    await again.stop()


async def test_a_topic_created_again_since_the_snapshot_inherits_nothing_from_its_namesake(tmp_path: Path) -> None:
    """A log start of the former topic would hide the records of the new one, and have them deleted."""
    node = await TierNode(tmp_path / "first").start()
    former = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(former, "a", "b", "c")
    await node.topics.delete_records("t", 0, 2)
    await node.topics.alter_config("t", lambda _: {"durability": "object"})
    await node.upload()
    await node.save_state()
    await node.topics.delete("t")
    await node.tier.sweeper.bury_topics()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "new")
    await node.upload()
    await node.stop()

    (tmp_path / "second").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "second" / METASTORE_FILE)
    await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    await store.close()
    again = await TierNode(tmp_path / "second", node.blobs).start()
    partition = again.topics.partition("t", 0)
    assert partition.topic_id == topic.id
    assert (partition.log_start, partition.wal_end) == (0, 0)
    assert values_of(await read_tier(again, partition)) == ["new"]
    await again.stop()


async def test_snapshots_of_a_restored_metastore_are_the_newest(tmp_path: Path) -> None:
    """Its revisions begin again, below those of the snapshots that are there."""
    node = await TierNode(tmp_path / "first").start()
    await node.topics.create("before", partitions=1)
    for number in range(200):
        await node.metastore.txn((), (Put("/headrace/many", b"%d" % number),))
    await node.save_state()
    await node.stop()
    (tmp_path / "second").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "second" / METASTORE_FILE)
    await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    await store.close()
    again = await TierNode(tmp_path / "second", node.blobs).start()
    for name in ("after", "later", "last", "very-last"):
        await again.topics.create(name, partitions=1)
        await again.tier.snapshots.save()
        found = {entry.key for entry in await newest_snapshot(node.blobs)}
        assert keys.topic_config(name) in found
    await again.stop()


async def test_a_metastore_behind_the_bucket_is_refused(tmp_path: Path) -> None:
    """An older copy was put back. Its next commits would get numbers that the bucket has for others."""
    node = await TierNode(tmp_path).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, "a")
    await node.upload()
    await node.stop()
    shutil.copy(tmp_path / METASTORE_FILE, tmp_path / "older")
    await node.start()
    await node.append(node.topics.get("t").partitions[0], "b")
    await node.upload()
    await node.stop()
    (tmp_path / "older").replace(tmp_path / METASTORE_FILE)
    with pytest.raises(Corrupted, match=r"the bucket has manifest 2.*headrace tier restore"):
        await node.start()
    await node.metastore.close()
    node.logs.file.close()
