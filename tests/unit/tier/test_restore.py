"""Nothing but the bucket is left: an empty disk, or an empty metastore, or both."""

import shutil
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_tier, values_of

from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Conflict
from headrace.node.node import METASTORE_FILE
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.tier import plans
from headrace.tier.restore import restore_metastore


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
    """Killed before the first checkpoint: the WAL has the whole transaction, and so have the manifests."""
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
        await node.crash()
        await node.start()
        partition = node.topics.partition("t", 0)
        assert [(a.producer_id, a.first_offset) for a in partition.aborted_between(0, 2)] == [(7, 0)]
        assert partition.last_stable_offset == partition.high_watermark == 2
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
