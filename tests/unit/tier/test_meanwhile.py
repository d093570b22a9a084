"""Things that change while the tier waits for a store: what was decided before must still hold, or be decided anew."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.raw_groups import transactional_batch
from tests.support.raw_kafka import Producer
from tests.support.tier_node import MIB, QUIET, TierNode, read_all, read_bucket, read_tier, records_of, values_of

from headrace.errors import DamagedRecords
from headrace.ids import show_topic_id
from headrace.records.builder import build_marker
from headrace.records.record import NewRecord
from headrace.tier import sweeper
from headrace.tier.inventory import load_inventory


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, happens: Callable[[], Awaitable[object]]
) -> None:
    """Let `happens` happen, once, behind the next call of `owner.name`, before the caller goes on."""
    original = getattr(owner, name)

    async def followed(*arguments: Any, **named: Any) -> Any:  # Any: whatever the method takes and gives
        done = await original(*arguments, **named)
        monkeypatch.setattr(owner, name, original)
        await happens()
        return done

    monkeypatch.setattr(owner, name, followed)


@pytest.mark.parametrize("step", ["new_object", "prepare"])
async def test_records_of_a_deleted_topic_do_not_become_those_of_its_namesake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    for number in range(5):
        await node.append(topic.partitions[0], f"old {number}")

    async def recreate() -> None:
        await node.topics.delete("t")
        created = await node.topics.create("t", partitions=1)
        await node.append(created.partitions[0], "new 0")

    meanwhile(monkeypatch, node.tier.commits, step, recreate)
    await node.upload()
    for _ in range(2):
        partition = node.topics.partition("t", 0)
        assert (partition.log_start, partition.end_offset) == (0, 1)
        assert values_of(await read_all(partition)) == ["new 0"]
        await node.restart()
    await node.upload()
    assert values_of(await read_all(node.topics.partition("t", 0))) == ["new 0"]
    await node.stop()


async def test_the_bucket_shows_no_aborted_record_whose_abort_was_forgotten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    producer = Producer(5, 0)
    partition.append(transactional_batch([b"aborted"], producer, 0, now_ms=1000), now_ms=1000)
    marker = build_marker(is_commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=1000)
    await node.produce.append_marker(partition, marker)
    await node.append(partition, "good")
    meanwhile(monkeypatch, node.tier.commits, "prepare", lambda: node.topics.delete_records("t", 0, 2))
    await node.upload()
    state = (await load_inventory(node.blobs)).partition(show_topic_id(topic.id), 0)
    assert state.aborted == ()
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["good"]
    await node.stop()


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_compaction_of_a_topic_that_is_deleted_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    settings = msgspec.structs.replace(QUIET, compact_sources=2)
    node = await TierNode(tmp_path, settings=settings, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1, config={"cleanup.policy": policy})
    for number in range(2):
        await node.append(topic.partitions[0], f"{number}", key="k")
        await node.upload()
    meanwhile(monkeypatch, node.tier.commits, "name", lambda: node.topics.delete("t"))
    compactor = node.tier.key_compactor if policy == "compact" else node.tier.compactor
    assert await compactor.run_once() == 0
    await node.tier.sweeper.sweep()
    await node.stop()


async def test_log_starts_of_a_topic_that_is_deleted_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_SLICE", 1)
    node = await TierNode(tmp_path, is_running_tier=False).start()
    for name in ("a", "b", "c"):
        topic = await node.topics.create(name, partitions=1)
        await node.append(topic.partitions[0], "0", "1")
        await node.topics.delete_records(name, 0, 1)
    meanwhile(monkeypatch, node.tier.commits, "replace", lambda: node.topics.delete("b"))
    await node.tier.sweeper.drop_dead_segments()
    await node.tier.ledger.write_pending()
    told = (await load_inventory(node.blobs)).partition(show_topic_id(node.topics.get("c").id), 0)
    assert told.log_start == 1
    await node.stop()


async def test_records_behind_emptied_segments_are_found_though_memory_begins_before_them(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create(
        "t", partitions=1, config={"cleanup.policy": "compact", "delete.retention.ms": "0"}
    )
    partition = topic.partitions[0]
    for _ in range(200):
        await node.produce.append_records(partition, [NewRecord(key=b"k" * 1000, value=None)])
    await node.upload()
    await node.logs.trim()
    assert partition.drop_chunk()
    await node.tier.key_compactor.compact(partition, is_forced=True)
    assert values_of(await read_tier(node, partition)) == []
    await node.append(partition, "live", key="l")
    assert not partition.is_hot(0)
    assert partition.is_hot(199)
    found = records_of(await partition.read_cold(0, MIB, partition.high_watermark))
    assert values_of(found) == ["live"]
    await node.stop()


async def test_objects_are_deleted_only_when_the_bucket_knows_their_successors(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUIET, compact_sources=2, grace_ms=0)
    node = await TierNode(tmp_path, settings=settings, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    for number in range(2):
        await node.append(topic.partitions[0], f"{number}")
        await node.upload()
    # Nobody has brought the manifest of the merge to the bucket yet.
    assert await node.tier.compactor.run_once()
    for _ in range(2):
        await node.tier.sweeper.collect_objects()
    assert len([info async for info in node.blobs.list("data/")]) == 1
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["0", "1"]
    await node.stop()


@pytest.mark.parametrize("wanted", ["by time", "newest"])
async def test_a_search_goes_on_in_the_object_that_took_its_segments_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    settings = msgspec.structs.replace(QUIET, compact_sources=2, grace_ms=0)
    node = await TierNode(tmp_path, settings=settings, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    for number in range(4):
        await node.append(topic.partitions[0], f"{number}", at_ms=1000 + number)
        await node.upload()

    async def merge() -> None:
        assert await node.tier.compactor.run_once()
        for _ in range(2):
            await node.tier.sweeper.collect_objects()
        assert len([info async for info in node.blobs.list("data/")]) == 1

    meanwhile(monkeypatch, node.tier.reader, "_blocks", merge)
    find = node.tier.reader.newest(topic.id, 0) if wanted == "newest" else node.tier.reader.find_time(topic.id, 0, 1003)
    assert await find == (3, 1003)
    await node.stop()


async def test_a_search_in_an_object_that_was_lost_fails(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "0", at_ms=1000)
    await node.upload()
    await node.blobs.delete([info.key async for info in node.blobs.list("data/")])
    for search in (node.tier.reader.newest(topic.id, 0), node.tier.reader.find_time(topic.id, 0, 1000)):
        with pytest.raises(DamagedRecords):
            await search
    await node.stop()


async def test_what_is_uploaded_though_it_was_deleted_meanwhile_leaves_the_bucket_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(QUIET, grace_ms=0)
    node = await TierNode(tmp_path, settings=settings, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "0", "1")

    async def delete_all() -> None:
        await node.topics.delete_records("t", 0, -1)
        await node.tier.sweeper.sweep()

    meanwhile(monkeypatch, node.tier.commits, "prepare", delete_all)
    await node.upload()
    for _ in range(3):
        await node.tier.sweeper.sweep()
    assert node.tier.reader.segment_count(topic.id, 0) == 0
    assert [info.key async for info in node.blobs.list("data/")] == []
    await node.stop()


async def test_two_who_settle_the_same_doubt_do_not_trip_over_each_other(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, "a")
    await node.upload()
    node.tier.commits.doubt([(partition.topic_id, 0)])
    await asyncio.gather(node.tier.commits.settle(), node.tier.commits.settle())
    assert values_of(await read_tier(node, partition)) == ["a"]
    await node.stop()
