"""Letting go: which segments retention drops, and that objects follow only after their records and a pause."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.metastores import ManualClock
from tests.support.tier_node import QUIET, TierNode, read_tier, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.control import keys
from headrace.control.metastore import Put
from headrace.errors import OffsetOutOfRange
from headrace.log.policy import TopicPolicy
from headrace.tier import plans
from headrace.tier.inventory import load_inventory
from headrace.tier.retention import retained_start
from headrace.tier.segments import LiveSegment

HOUR = 3_600_000


def live(base: int, end: int, *, length: int = 100, newest_ms: int = 0) -> LiveSegment:
    return LiveSegment(
        base_offset=base,
        end_offset=end,
        object_id=base,
        key=f"{base}",
        object_size=length,
        position=0,
        length=length,
        record_count=end - base,
        max_timestamp_ms=newest_ms,
        leader_epoch=0,
        committed_ms=newest_ms,
        revision=1,
    )


def start_of(
    segments: list[LiveSegment], policy: TopicPolicy, *, now_ms: int = 10_000, high_watermark: int = 10**9
) -> int:
    return retained_start(segments, policy, log_start=0, high_watermark=high_watermark, tail_bytes=0, now_ms=now_ms)


@pytest.mark.requirement("X0.2")
def test_age_counts_by_each_segments_newest_record() -> None:
    segments = [live(0, 10, newest_ms=1000), live(10, 20, newest_ms=9000), live(20, 30, newest_ms=500)]
    assert start_of(segments, TopicPolicy(retention_ms=5000)) == 10
    assert start_of(segments, TopicPolicy(retention_ms=-1)) == 0
    assert start_of(segments, TopicPolicy(retention_ms=0)) == 30
    assert start_of(segments, TopicPolicy(retention_ms=0, is_deleted_by_retention=False)) == 0


@pytest.mark.requirement("X0.2")
def test_size_keeps_at_least_the_limit() -> None:
    segments = [live(0, 10), live(10, 20), live(20, 30)]
    assert start_of(segments, TopicPolicy(retention_ms=-1, retention_bytes=200)) == 10
    assert start_of(segments, TopicPolicy(retention_ms=-1, retention_bytes=150)) == 10
    assert start_of(segments, TopicPolicy(retention_ms=-1, retention_bytes=301)) == 0
    assert start_of(segments, TopicPolicy(retention_ms=-1, retention_bytes=0)) == 30


@given(high_watermark=st.integers(0, 40), retention=st.integers(-1, 400))
def test_nothing_above_the_high_watermark_goes(high_watermark: int, retention: int) -> None:
    segments = [live(0, 10), live(10, 20), live(20, 30)]
    policy = TopicPolicy(retention_ms=0, retention_bytes=retention)
    assert start_of(segments, policy, high_watermark=high_watermark) <= high_watermark


async def make_node(tmp_path: Path, **settings: object) -> tuple[TierNode, ManualClock]:
    clock = ManualClock(time_ms=100 * HOUR)
    changed = msgspec.structs.replace(QUIET, grace_ms=HOUR, **settings)
    node = await TierNode(tmp_path, MemoryBlobStore(clock), changed, clock=clock, is_running_tier=False).start()
    return node, clock


@pytest.mark.requirement("X0.2")
async def test_log_start_rises_first_and_objects_go_after_the_grace_period(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1, config={"retention.ms": str(HOUR)})
    partition = topic.partitions[0]
    await node.append(partition, "old")
    await node.upload()
    clock.advance(2 * HOUR)
    await node.append(partition, "new")
    await node.upload()
    await node.tier.sweeper.sweep()
    await node.tier.ledger.write_pending()
    assert partition.log_start == 1
    with pytest.raises(OffsetOutOfRange):
        partition.check_offset(0)
    assert values_of(await read_tier(node, partition, 1)) == ["new"]
    inventory = await load_inventory(node.blobs)
    state = inventory.partition(inventory.topic_named("t").topic_id, 0)
    assert (state.log_start, [s.base_offset for s in state.segments]) == (1, [1])
    assert len([info async for info in node.blobs.list("data/")]) == 2
    clock.advance(HOUR)
    await node.tier.sweeper.sweep()
    assert len([info async for info in node.blobs.list("data/")]) == 1
    assert values_of(await read_tier(node, partition, 1)) == ["new"]
    await node.stop()


async def test_deleted_records_reach_the_manifests(tmp_path: Path) -> None:
    node, _ = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a", "b", "c")
    await node.upload()
    assert await node.topics.delete_records("t", 0, 2) == 2
    await node.tier.sweeper.sweep()
    await node.tier.ledger.write_pending()
    inventory = await load_inventory(node.blobs)
    assert inventory.partition(inventory.topic_named("t").topic_id, 0).log_start == 2
    assert values_of(await read_tier(node, topic.partitions[0], 2)) == ["c"]
    await node.stop()


async def test_deleted_topic_leaves_the_bucket(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a")
    await node.upload()
    await node.topics.delete("t")
    await node.tier.sweeper.sweep()
    await node.tier.ledger.write_pending()
    assert (await load_inventory(node.blobs)).topics == {}
    clock.advance(HOUR)
    await node.tier.sweeper.sweep()
    assert [info async for info in node.blobs.list("data/")] == []
    assert (await node.metastore.range(keys.OBJECTS)).items == ()
    assert (await node.metastore.range(keys.DELETED_TOPICS)).items == ()
    await node.stop()


async def test_held_metastore_collects_nothing(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a")
    await node.upload()
    await node.topics.delete("t")
    await node.metastore.txn((), (Put(plans.HOLD, b""),))
    clock.advance(HOUR)
    await node.tier.sweeper.sweep()
    clock.advance(HOUR)
    await node.tier.sweeper.sweep()
    assert len([info async for info in node.blobs.list("data/")]) == 1
    await node.stop()


async def test_orphans_go_and_foreign_objects_stay(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    await node.blobs.put("data/readme.txt", [b"mine"])
    orphan = await node.tier.commits.new_object()
    await node.blobs.put(orphan.key, [b"never committed"])
    assert await node.tier.sweeper.collect_orphans() == 0
    clock.advance(HOUR + 1)
    assert await node.tier.sweeper.collect_orphans() == 1
    assert [info.key async for info in node.blobs.list("data/")] == ["data/readme.txt"]
    await node.stop()


async def test_folded_manifests_are_pruned_after_the_grace_period(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1)
    for number in range(5):
        await node.append(topic.partitions[0], f"{number}")
        await node.upload()
        await node.tier.ledger.fold()
    clock.advance(2 * HOUR)
    await node.tier.ledger.prune(grace_ms=HOUR)
    assert len([info async for info in node.blobs.list("checkpoints/")]) == 3
    assert len([info async for info in node.blobs.list("manifests/")]) == 2
    inventory = await load_inventory(node.blobs)
    assert inventory.partition(inventory.topic_named("t").topic_id, 0).end_offset == 5
    await node.stop()
