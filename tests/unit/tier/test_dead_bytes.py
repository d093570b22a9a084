"""Dead bytes: objects that one slow partition keeps are written anew without what has expired in them."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.metastores import ManualClock
from tests.support.tier_node import MIB, QUIET, TierNode, read_bucket, read_tier, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.log.partition import PartitionLog
from headrace.tier.merging import is_wasteful, stretches, worst_objects
from headrace.tier.segments import LiveSegment, SegmentTable

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
BAR_PERCENT = 30


async def _node(path: Path, **settings: object) -> tuple[TierNode, ManualClock]:
    clock = ManualClock(time_ms=100 * HOUR)
    changed = msgspec.structs.replace(
        QUIET, **{"grace_ms": 0, "compact_source_bytes": 1024, "compact_sources": 1000, **settings}
    )
    node = await TierNode(path, MemoryBlobStore(clock), changed, clock=clock, is_running_tier=False).start()
    return node, clock


async def _bucket_bytes(node: TierNode) -> int:
    return sum([info.size async for info in node.blobs.list("data/")])


def _live_bytes(node: TierNode) -> int:
    return sum(segment.length for place in node.tier.table for segment in node.tier.table.of(place))


async def _keep_house(node: TierNode, clock: ManualClock) -> None:
    """As the tier does after each sweep interval. The second sweep deletes what the first one has found to be unused."""
    await node.tier.sweeper.sweep()
    await node.tier.compactor.run_once()
    await node.tier.compactor.free_dead()
    await node.tier.sweeper.sweep()
    clock.advance(1)
    await node.tier.sweeper.sweep()


async def test_one_slow_partition_does_not_keep_what_has_expired_beside_it(tmp_path: Path) -> None:
    node, clock = await _node(tmp_path)
    fast = (await node.topics.create("fast", partitions=4, config={"retention.ms": str(MINUTE)})).partitions
    slow = (await node.topics.create("slow", partitions=1, config={"retention.ms": "-1"})).partitions[0]
    for number in range(10):
        for partition in fast:
            await node.append(partition, "x" * 50_000, at_ms=clock.now_ms())
        await node.append(slow, f"{number}", at_ms=clock.now_ms())
        await node.upload()
        clock.advance(10 * SECOND)
    clock.advance(MINUTE)
    await _keep_house(node, clock)
    assert await _bucket_bytes(node) < 20_000, "2 MB have expired"
    kept = [f"{number}" for number in range(10)]
    assert values_of(await read_tier(node, slow)) == kept
    await node.tier.ledger.write_pending()
    assert values_of(await read_bucket(node.blobs, "slow", 0)) == kept
    await node.restart()
    assert values_of(await read_tier(node, node.topics.partition("slow", 0))) == kept
    await node.tier.compactor.free_dead()
    assert node.tier.metrics.tier_rewritten_bytes_total == 0, "there is nothing more to free"
    await node.stop()


async def test_nothing_is_copied_while_little_is_dead(tmp_path: Path) -> None:
    node, clock = await _node(tmp_path)
    fast = (await node.topics.create("fast", partitions=1, config={"retention.ms": str(MINUTE)})).partitions[0]
    slow = (await node.topics.create("slow", partitions=1, config={"retention.ms": "-1"})).partitions[0]
    for _ in range(10):
        await node.append(fast, "x" * 1000, at_ms=clock.now_ms())
        await node.append(slow, "x" * 9000, at_ms=clock.now_ms())
        await node.upload()
    clock.advance(2 * MINUTE)
    await _keep_house(node, clock)
    assert node.tier.metrics.tier_rewritten_bytes_total == 0
    await node.stop()


async def test_a_damaged_object_does_not_end_all_freeing(tmp_path: Path) -> None:
    node, clock = await _node(tmp_path)
    fast = (await node.topics.create("fast", partitions=1, config={"retention.ms": str(MINUTE)})).partitions[0]
    slow = (await node.topics.create("slow", partitions=1, config={"retention.ms": "-1"})).partitions[0]
    for number in range(4):
        await node.append(slow, f"{number}", at_ms=clock.now_ms())
        await node.append(fast, "x" * 50_000, at_ms=clock.now_ms())
        await node.upload()
    segment = node.tier.table.of((slow.topic_id, 0))[1]
    data = bytearray(await node.blobs.get(segment.key))
    data[segment.position + 70] ^= 1
    await node.blobs.put(segment.key, [data])
    clock.advance(2 * MINUTE)
    await _keep_house(node, clock)
    await _keep_house(node, clock)
    assert await _bucket_bytes(node) < 60_000, "the damaged one alone is kept as it is"
    assert values_of(await read_tier(node, slow, 2)) == ["2", "3"]
    await node.stop()


class _Mixed:
    """Topics with retentions from a minute to for ever, which share their objects."""

    RETENTIONS = (MINUTE, 2 * MINUTE, 5 * MINUTE, 20 * MINUTE, -1)

    def __init__(self, node: TierNode, clock: ManualClock) -> None:
        self.node = node
        self.clock = clock
        self.partitions: list[PartitionLog] = []
        self.kept: list[str] = []
        self.worst_percent = 0.0

    async def create(self) -> None:
        for retention in self.RETENTIONS:
            made = await self.node.topics.create(f"t{retention}", partitions=2, config={"retention.ms": str(retention)})
            self.partitions += made.partitions

    async def run(self, minutes: int, *, payload: str) -> None:
        for number in range(6 * minutes):
            for index, partition in enumerate(self.partitions):
                # Those that keep for ever write a tenth of the others.
                size = len(payload) // (10 if index >= len(self.partitions) - 2 else 1)
                await self.node.append(partition, f"{number} {payload[:size]}", at_ms=self.clock.now_ms())
            self.kept.append(f"{number}")
            await self.node.upload()
            self.clock.advance(10 * SECOND)
            await _keep_house(self.node, self.clock)
            total = await _bucket_bytes(self.node)
            self.worst_percent = max(self.worst_percent, 100 * (total - _live_bytes(self.node)) / total)

    async def check(self) -> None:
        for partition in self.partitions[-2:]:
            found = values_of(await read_tier(self.node, partition))
            assert [value.split(" ")[0] for value in found] == self.kept

    @property
    def amplification(self) -> float:
        """Bytes copied for each byte uploaded."""
        metrics = self.node.tier.metrics
        return metrics.tier_rewritten_bytes_total / metrics.tier_uploaded_bytes_total


async def test_mixed_retentions_leave_few_dead_bytes_and_little_copying(tmp_path: Path) -> None:
    node, clock = await _node(tmp_path)
    mixed = _Mixed(node, clock)
    await mixed.create()
    await mixed.run(30, payload="x" * 4000)
    assert mixed.worst_percent <= BAR_PERCENT
    assert mixed.amplification <= 1.0
    await mixed.check()
    await node.stop()


@pytest.mark.long
async def test_hours_of_mixed_retentions_leave_few_dead_bytes(tmp_path: Path) -> None:
    node, clock = await _node(tmp_path, compact_sources=10, compact_source_bytes=64 * 1024, compact_target_bytes=MIB)
    mixed = _Mixed(node, clock)
    await mixed.create()
    await mixed.run(3 * 60, payload="x" * 8000)
    print(f"dead bytes: {mixed.worst_percent:.1f} % at worst; {mixed.amplification:.2f} bytes copied per byte uploaded")
    assert mixed.worst_percent <= BAR_PERCENT
    assert mixed.amplification <= 2.0
    await mixed.check()
    await node.stop()


def _segment(base: int, object_id: int, length: int, object_size: int) -> LiveSegment:
    return LiveSegment(
        base_offset=base,
        end_offset=base + 1,
        object_id=object_id,
        key=f"{object_id}",
        object_size=object_size,
        position=0,
        length=length,
        record_count=1,
        max_timestamp_ms=0,
        leader_epoch=0,
        committed_ms=0,
        revision=1,
    )


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 5000)), min_size=1, max_size=30), st.integers(1, 100))
def test_the_worst_objects_are_chosen_and_no_more_than_it_takes(shapes: list[tuple[int, int]], percent: int) -> None:
    table = SegmentTable()
    for number, (live, dead) in enumerate(shapes):
        table.add((b"t", number), _segment(0, number, live, live + dead + 200))
    chosen = worst_objects(
        table, list(table.objects()), dead_percent=percent, target_bytes=10**9, count_max=len(shapes)
    )
    held = dict(table.objects())
    if is_wasteful(table, dead_percent=percent, dead_bytes_min=1):
        freed = sum(held[each].dead_bytes for each in chosen)
        assert (table.dead_bytes - freed) * 100 <= (table.object_bytes - freed) * percent
        shares = [held[each].dead_bytes / held[each].size for each in chosen]
        assert shares == sorted(shares, reverse=True)
    table.forget_topic(b"t")
    assert (table.object_bytes, table.dead_bytes) == (0, 0)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_what_is_chosen_can_move_at_once(dead: list[int]) -> None:
    table = SegmentTable()
    for number, size in enumerate(dead):
        table.add((b"t", 0), _segment(number, number, 100, size + 300))
    candidates = [each for each in table.objects() if each[1].dead_bytes]
    chosen = worst_objects(table, candidates, dead_percent=1, target_bytes=10**9, count_max=len(dead))
    moved = [segment.object_id for stretch in stretches(table, chosen) for segment in stretch.segments]
    assert sorted(moved) == sorted(chosen)
    assert bool(chosen) == bool(candidates)
