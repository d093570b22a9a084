"""Fewer objects, fewer records, the same log: merging by bytes, and compaction by key."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.metastores import ManualClock
from tests.support.tier_node import QUIET, TierNode, read_tier, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.control import embedded
from headrace.control.metastore import TxnLimits
from headrace.errors import DamagedRecords
from headrace.records.batch import has_valid_crc, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_records
from headrace.tier.format.manifest import Aborted
from headrace.tier.inventory import load_inventory
from headrace.tier.key_cleaning import Cleaning

HOUR = 3_600_000


async def make_node(tmp_path: Path, **settings: object) -> tuple[TierNode, ManualClock]:
    clock = ManualClock(time_ms=100 * HOUR)
    changed = msgspec.structs.replace(QUIET, grace_ms=HOUR, **settings)
    node = await TierNode(tmp_path, MemoryBlobStore(clock), changed, clock=clock, is_running_tier=False).start()
    return node, clock


async def data_keys(node: TierNode) -> list[str]:
    return [info.key async for info in node.blobs.list("data/")]


@pytest.mark.requirement("X3.4")
async def test_ten_small_objects_become_one_with_all_partitions(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=5)
    for number in range(10):
        for partition in topic.partitions:
            await node.append(partition, f"{number}")
        await node.upload()
    assert len(await data_keys(node)) == 10
    assert await node.tier.compactor.run_once() == 50
    await node.tier.ledger.write_pending()
    for partition in topic.partitions:
        assert node.tier.reader.segment_count(topic.id, partition.index) == 1
        assert values_of(await read_tier(node, partition)) == [f"{number}" for number in range(10)]
    await node.tier.sweeper.sweep()
    clock.advance(HOUR)
    await node.tier.sweeper.sweep()
    assert len(await data_keys(node)) == 1
    inventory = await load_inventory(node.blobs)
    state = inventory.partition(inventory.topic_named("t").topic_id, 3)
    assert [(s.base_offset, s.end_offset) for s in state.segments] == [(0, 10)]
    await node.restart()
    assert values_of(await read_tier(node, node.topics.partition("t", 2))) == [f"{number}" for number in range(10)]
    await node.stop()


async def test_few_small_objects_wait_and_large_ones_are_left_alone(tmp_path: Path) -> None:
    node, _ = await make_node(tmp_path, compact_source_bytes=2000)
    topic = await node.topics.create("t", partitions=1)
    for number in range(12):
        await node.append(topic.partitions[0], "x" * (5000 if number < 6 else 10))
        await node.upload()
    assert await node.tier.compactor.run_once() == 0
    assert await node.tier.compactor.run_once(objects_min=2) == 6
    assert len(await read_tier(node, topic.partitions[0])) == 12
    await node.stop()


async def test_reader_with_an_old_name_finds_the_new_object(tmp_path: Path) -> None:
    node, _ = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    for number in range(10):
        await node.append(partition, f"{number}")
        await node.upload()
    old = await data_keys(node)
    await read_tier(node, partition)
    await node.tier.compactor.run_once()
    await node.blobs.delete(old)
    for key in old:
        node.tier._cache.forget(key)
    assert values_of(await read_tier(node, partition)) == [f"{number}" for number in range(10)]
    await node.blobs.delete(await data_keys(node))
    for key in [segment.key for segment in node.tier.table.of((topic.id, 0))]:
        node.tier._cache.forget(key)
    with pytest.raises(DamagedRecords, match=r"t-0: offsets 0 to 9 cannot be read: .* is missing"):
        await read_tier(node, partition)
    with pytest.raises(DamagedRecords):
        await node.tier.reader.find_time(topic.id, 0, 0)
    with pytest.raises(DamagedRecords):
        await node.tier.reader.newest(topic.id, 0)
    await node.stop()


async def test_newest_record_per_key_stays_at_its_offset(tmp_path: Path) -> None:
    node, _ = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    partition = topic.partitions[0]
    for round_ in range(4):
        for key in ("a", "b", "c"):
            await node.append(partition, f"{key}{round_}", key=key)
        await node.upload()
    await node.append(partition, "b is in the WAL", key="b")
    assert await node.tier.key_compactor.run_once() == 9
    records = await read_tier(node, partition)
    assert [(record.offset, (record.value or b"").decode()) for record in records] == [
        (9, "a3"),
        (10, "b3"),
        (11, "c3"),
    ]
    assert partition.uploaded_end == 12
    await node.append(partition, "a4", key="a")
    await node.upload()
    assert await node.tier.key_compactor.run_once(is_forced=True) == 2
    assert values_of(await read_tier(node, partition)) == ["c3", "b is in the WAL", "a4"]
    await node.restart()
    assert values_of(await read_tier(node, node.topics.partition("t", 0))) == ["c3", "b is in the WAL", "a4"]
    await node.stop()


async def test_compaction_of_many_segments_takes_as_many_transactions_as_the_metastore_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An etcd takes 128 operations by default. A topic of commits has a segment for every few of them."""
    monkeypatch.setattr(embedded, "TXN_LIMITS", TxnLimits(ops_max=24, bytes_max=1_000_000))
    node, _ = await make_node(tmp_path)
    topic = await node.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    (partition,) = topic.partitions
    segments = 3 * node.tier.commits.segments_max
    for number in range(segments):
        await node.append(partition, f"{number}", key="same")
        await node.upload()
    assert await node.tier.key_compactor.run_once() == segments - 1
    assert values_of(await read_tier(node, partition)) == [f"{segments - 1}"]
    await node.stop()


async def test_tombstone_goes_after_its_retention_and_the_end_stays(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    config = {"cleanup.policy": "compact,delete", "delete.retention.ms": str(HOUR), "retention.ms": "-1"}
    topic = await node.topics.create("t", partitions=1, config=config)
    partition = topic.partitions[0]
    await node.append(partition, "v", key="k")
    await node.produce.append_records(partition, [NewRecord(value=None, key=b"k")])
    await node.upload()
    assert await node.tier.key_compactor.run_once() == 1
    assert [record.value for record in await read_tier(node, partition)] == [None]
    clock.advance(2 * HOUR)
    await node.append(partition, "other", key="o")
    await node.upload()
    assert await node.tier.key_compactor.run_once(is_forced=True) == 1
    assert values_of(await read_tier(node, partition)) == ["other"]
    await node.restart()
    assert node.topics.partition("t", 0).end_offset == 3
    await node.stop()


async def test_young_records_are_not_compacted(tmp_path: Path) -> None:
    node, clock = await make_node(tmp_path)
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HOUR)}
    topic = await node.topics.create("t", partitions=1, config=config)
    for number in range(3):
        await node.append(topic.partitions[0], f"{number}", key="k")
    await node.upload()
    assert await node.tier.key_compactor.run_once() == 0
    clock.advance(HOUR + 1)
    assert await node.tier.key_compactor.run_once() == 2
    await node.stop()


batches_strategy = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=6), min_size=1, max_size=8
)


@given(shape=batches_strategy, codec=st.integers(0, 4))
def test_cleaning_keeps_exactly_the_newest_of_each_key(shape: list[list[tuple[str, bool]]], codec: int) -> None:
    batches, expected, offset = [], {}, 0
    for rows in shape:
        records = [
            NewRecord(key=key.encode(), value=None if is_tombstone else f"{offset + i}".encode(), timestamp_ms=1000 + i)
            for i, (key, is_tombstone) in enumerate(rows)
        ]
        batch = build_batch(records, now_ms=0, codec=codec)
        batch[:8] = offset.to_bytes(8, "big")
        for i, record in enumerate(records):
            expected[record.key] = (offset + i, record.value)
        batches.append(bytes(batch))
        offset += len(rows)
    cleaning = Cleaning([], tombstones_before_ms=0)
    for batch_ in batches:
        cleaning.note(batch_)
    kept = []
    for batch_ in batches:
        cleaned = cleaning.clean(batch_).batch
        if cleaned is not None:
            assert has_valid_crc(cleaned)
            assert read_header(cleaned).end_offset == read_header(batch_).end_offset
            kept += list(read_records(cleaned))
    assert sorted((record.offset, record.value) for record in kept) == sorted(expected.values())


def test_records_of_aborted_transactions_go_and_do_not_hide_older_ones() -> None:
    committed = bytes(build_batch([NewRecord(key=b"k", value=b"kept")], now_ms=0))
    aborted = build_batch([NewRecord(key=b"k", value=b"undone")], now_ms=0, producer_id=5, is_transactional=True)
    aborted[:8] = (1).to_bytes(8, "big")
    cleaning = Cleaning([Aborted(producer_id=5, first_offset=1, last_offset=2)], tombstones_before_ms=0)
    for batch in (committed, aborted):
        cleaning.note(batch)
    assert cleaning.clean(committed).batch == committed
    assert cleaning.clean(aborted).batch is None
