"""A change of `durability`: what consumers have read stays readable, through kills too, and nothing is shown too soon."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, batch_of, turn_of_the_loop
from tests.support.tier_node import TierNode, read_all, values_of

from headrace.control.metastore import Compare, Op, TxnResult
from headrace.errors import StorageFailed
from headrace.log.partition import PartitionLog

WAL = {"durability": "wal"}
OBJECT = {"durability": "object"}


async def _node(path: Path) -> TierNode:
    node = await TierNode(path, is_running_tier=False).start()
    await node.topics.create("t", partitions=2)
    return node


async def _put(node: TierNode, *values: str) -> PartitionLog:
    """On this broker's disk; nobody waits for more."""
    partition = node.topics.partition("t", 0)
    partition.append(batch_of(*(value.encode() for value in values)), now_ms=NOW_MS)
    await node.logs.wal.drain()
    return partition


async def _switch(node: TierNode, config: dict[str, str]) -> None:
    await node.topics.alter_config("t", lambda _: config)


async def _kill(node: TierNode) -> PartitionLog:
    await node.crash()
    await node.start()
    return node.topics.partition("t", 0)


async def test_what_was_readable_before_the_switch_is_readable_after_a_kill(tmp_path: Path) -> None:
    node = await _node(tmp_path)
    await _put(node, "a", "b")
    await _switch(node, OBJECT)
    partition = await _put(node, "c")
    assert (partition.high_watermark, partition.end_offset) == (2, 3)
    for _ in range(2):
        partition = await _kill(node)
        assert (partition.high_watermark, partition.end_offset) == (2, 3)
        assert values_of(await read_all(partition)) == ["a", "b"]
    await node.upload()
    assert values_of(await read_all(partition)) == ["a", "b", "c"]
    await node.stop()


async def test_a_record_after_the_kill_waits_for_object_storage(tmp_path: Path) -> None:
    node = await _node(tmp_path)
    await _put(node, "a")
    await _switch(node, OBJECT)
    await _kill(node)
    partition = await _put(node, "b")
    assert (partition.high_watermark, partition.durable_end) == (1, 2)
    await node.upload()
    assert partition.high_watermark == 2
    await node.stop()


async def test_back_and_forth_no_watermark_goes_back(tmp_path: Path) -> None:
    node = await _node(tmp_path)
    shown = 0
    for number in range(12):
        partition = await _put(node, f"{number}")
        assert partition.high_watermark >= shown
        await _switch(node, WAL if number % 2 else OBJECT)
        # In flight while the rules change, of one kind and of the other.
        node.send(partition, f"{number} in flight")
        shown = partition.high_watermark
        if number % 3 == 2:
            await node.logs.wal.drain()
            shown = partition.high_watermark
            partition = await _kill(node)
            assert partition.high_watermark >= shown
            expected = partition.end_offset if number % 2 else shown
            assert partition.high_watermark == expected
    await node.upload()
    assert partition.high_watermark == partition.end_offset == 24
    await node.stop()


async def test_what_one_switch_has_shown_the_next_does_not_hide(tmp_path: Path) -> None:
    """A record taken as `object` is shown by the switch to `wal`, and nothing else is appended before the switch back."""
    node = await _node(tmp_path)
    await _switch(node, OBJECT)
    partition = await _put(node, "a")
    assert partition.high_watermark == 0
    await _switch(node, WAL)
    assert partition.high_watermark == 1
    await _switch(node, OBJECT)
    assert (await _kill(node)).high_watermark == 1
    await node.stop()


@pytest.mark.parametrize("override", [True, False])
async def test_an_override_that_goes_is_a_switch_too(tmp_path: Path, override: bool) -> None:
    node = await TierNode(tmp_path, is_running_tier=False, defaults=OBJECT if override else WAL).start()
    await node.topics.create("t", partitions=1, config=WAL if override else {})
    await _put(node, "a")
    await node.topics.alter_config("t", lambda _: {} if override else OBJECT)
    assert (await _kill(node)).high_watermark == 1
    await node.stop()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_new_default_hides_nothing(tmp_path: Path, is_killed: bool) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    await node.topics.create("t", partitions=1)
    await node.topics.create("own", partitions=1, config=OBJECT)
    await _put(node, "a")
    node.send(node.topics.partition("own", 0), "unseen")
    await node.logs.wal.drain()
    await (node.crash() if is_killed else node.stop())
    node.defaults = OBJECT
    await node.start()
    assert node.topics.partition("own", 0).high_watermark == 0
    partition = await _put(node, "b")
    assert (partition.high_watermark, partition.end_offset) == (1, 2)
    assert (await _kill(node)).high_watermark == 1
    await node.stop()


class _Dying:
    """A metastore that dies in mid-transaction, before or after it has become true."""

    def __init__(self, store) -> None:  # type: ignore[no-untyped-def]  # any metastore
        self._store = store
        self.dies_in = -1
        self.is_written = False

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]  # the rest of the port
        return getattr(self._store, name)

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        self.dies_in -= 1
        if self.dies_in == 0:
            if self.is_written:
                await self._store.txn(compares, then_ops, else_ops)
            raise StorageFailed("the disk is gone")
        result: TxnResult = await self._store.txn(compares, then_ops, else_ops)
        return result


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("dies_in", [1, 2])
@pytest.mark.parametrize(("before", "after"), [(WAL, OBJECT), (OBJECT, WAL)])
async def test_a_death_at_every_step_of_the_switch_hides_nothing(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], dies_in: int, is_written: bool
) -> None:
    stores: list[_Dying] = []

    def wrap(store):  # type: ignore[no-untyped-def]  # any metastore
        stores.append(_Dying(store))
        return stores[-1]

    node = await TierNode(tmp_path, is_running_tier=False, wrap=wrap).start()
    await node.topics.create("t", partitions=1, config=before)
    partition = await _put(node, "a")
    stores[-1].dies_in, stores[-1].is_written = dies_in, is_written
    switch = asyncio.ensure_future(node.topics.alter_config("t", lambda _: after))
    for _ in range(50):
        node.send(partition, "meanwhile")
        await turn_of_the_loop(1)
    await asyncio.gather(switch, return_exceptions=True)
    node.send(partition, "behind")
    await node.logs.wal.drain()
    shown = partition.high_watermark
    assert (await _kill(node)).high_watermark >= shown
    await node.stop()


async def test_partitions_added_during_a_switch_have_the_new_rules(tmp_path: Path) -> None:
    node = await _node(tmp_path)
    await asyncio.gather(
        node.topics.add_partitions("t", 4),
        node.topics.alter_config("t", lambda _: OBJECT),
        node.topics.add_partitions("t", 6),
    )
    partitions = node.topics.get("t").partitions
    assert [each.policy.durability for each in partitions] == ["object"] * 6
    await node.stop()


async def test_a_caller_that_leaves_does_not_leave_half_a_switch(tmp_path: Path) -> None:
    node = await _node(tmp_path)
    await _put(node, "a")
    switch = asyncio.ensure_future(node.topics.alter_config("t", lambda _: OBJECT))
    await turn_of_the_loop(1)
    switch.cancel()
    await asyncio.gather(switch, return_exceptions=True)
    await node.topics.alter_config("t", lambda overrides: {**overrides, "retention.ms": "1000000"})
    assert node.topics.get("t").overrides["durability"] == "object"
    assert node.topics.partition("t", 0).policy.durability == "object"
    await node.stop()
