"""A clean stop: what only the disk has goes to object storage first, for a bounded time, and what could not go is said."""

import asyncio
import random
from pathlib import Path

import pytest
import structlog
from tests.support.simulated_store import SimulatedStore
from tests.support.tier_node import QUIET, TierNode, eventually, read_all, read_bucket, values_of

from headrace.clock import SystemClock
from headrace.tier.format import keys
from headrace.tier.leaving import Leaving

LONG_MS = 60_000


def _store() -> SimulatedStore:
    return SimulatedStore(SystemClock(), random.Random(1))


async def _stop(node: TierNode, tail_ms: int) -> None:
    """As `TierNode.stop`, with a tail to upload."""
    await node.tier.stop(tail_ms=tail_ms)
    await node.logs.stop()
    await node.metastore.close()


async def _node(path: Path, store: SimulatedStore) -> TierNode:
    node = await TierNode(path, blobs=store, settings=QUIET).start()
    for name, durability in (("w", "wal"), ("o", "object"), ("empty", "wal")):
        await node.topics.create(name, partitions=2, config={"durability": durability})
    return node


async def test_a_stop_uploads_the_tail_and_what_a_new_disk_would_need(tmp_path: Path) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    for number in range(5):
        await node.append(node.topics.partition("w", 0), f"{number}")
    await node.append(node.topics.partition("w", 1), "other")
    pending = node.send(node.topics.partition("o", 0), "awaited")
    await _stop(node, LONG_MS)
    assert (await pending).base_offset == 0
    assert values_of(await read_bucket(store, "w", 0)) == ["0", "1", "2", "3", "4"]
    assert values_of(await read_bucket(store, "w", 1)) == ["other"]
    assert values_of(await read_bucket(store, "o", 0)) == ["awaited"]
    for prefix in (keys.BROKER_STATES, keys.METASTORE_SNAPSHOTS):
        assert [info.key async for info in store.list(prefix)]
    await node.start()
    assert node.topics.partition("w", 0).unuploaded_bytes == 0
    assert values_of(await read_all(node.topics.partition("w", 0))) == ["0", "1", "2", "3", "4"]
    await node.stop()


async def test_what_could_not_be_uploaded_is_said_and_uploaded_by_the_next_start(tmp_path: Path) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    await node.append(node.topics.partition("w", 1), "kept")
    store.is_down = True
    with structlog.testing.capture_logs() as said:
        await _stop(node, 200)
    (told,) = [each for each in said if "only its disk has" in each["event"]]
    assert (told["partitions"], told["partition_count"]) == (["w-1"], 1)
    assert told["bytes"] > 0
    assert any("signal again" in each["event"] for each in said)
    store.is_down = False
    await node.start()
    await node.upload()
    assert values_of(await read_bucket(store, "w", 1)) == ["kept"]
    await node.stop()


async def test_an_outage_that_ends_in_time_is_waited_out(tmp_path: Path) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    await node.append(node.topics.partition("w", 0), "a")
    store.is_down = True
    stopping = asyncio.ensure_future(_stop(node, LONG_MS))
    await eventually(lambda: node.tier.metrics.tier_upload_failures_total > 0)
    store.is_down = False
    await stopping
    assert values_of(await read_bucket(store, "w", 0)) == ["a"]


async def test_who_hurries_waits_no_longer(tmp_path: Path) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    await node.append(node.topics.partition("w", 0), "a")
    store.is_down = True
    with structlog.testing.capture_logs() as said:
        stopping = asyncio.ensure_future(_stop(node, 3_600_000))
        await eventually(lambda: node.tier.metrics.tier_upload_failures_total > 0)
        node.tier.hurry()
        await asyncio.wait_for(stopping, 60)
    assert any("only its disk has" in each["event"] for each in said)


async def test_a_store_that_is_down_costs_nothing_when_there_is_no_tail(tmp_path: Path) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    await node.append(node.topics.partition("w", 0), "a")
    await node.upload()
    store.is_down = True
    await asyncio.wait_for(_stop(node, 3_600_000), 60)


@pytest.mark.parametrize("step", range(0, 24, 3))
async def test_a_stop_cut_short_at_any_step_loses_and_repeats_nothing(tmp_path: Path, step: int) -> None:
    store = _store()
    node = await _node(tmp_path, store)
    for number in range(5):
        await node.append(node.topics.partition("w", number % 2), f"{number}")
    stopping = asyncio.ensure_future(_stop(node, LONG_MS))
    for _ in range(step):
        await asyncio.sleep(0)
    node.tier.hurry()
    await stopping
    await node.start()
    await node.upload()
    for index, expected in ((0, ["0", "2", "4"]), (1, ["1", "3"])):
        assert values_of(await read_all(node.topics.partition("w", index))) == expected
        assert values_of(await read_bucket(store, "w", index)) == expected
    await node.stop()


async def test_what_others_have_to_do_first_gets_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that another broker has written is found out by a task of its own: the stop must not keep the loop from it."""
    node = await _node(tmp_path, _store())
    await node.upload()
    attempts = 0

    async def write_nothing() -> None:
        nonlocal attempts
        attempts += 1
        assert attempts < 100, "nobody else has a turn"

    async def upload_nothing() -> bool:
        return True

    leaving = Leaving(
        uploader=node.tier.uploader, ledger=node.tier.ledger, logs=node.logs, is_store_down=lambda: False, allowed_ms=0
    )
    is_behind = [True]
    monkeypatch.setattr(type(node.tier.ledger), "is_behind", property(lambda _: bool(is_behind)))
    monkeypatch.setattr(node.tier.ledger, "write_pending", write_nothing)
    monkeypatch.setattr(node.tier.uploader, "upload_round", upload_nothing)
    asyncio.get_running_loop().call_soon(is_behind.clear)
    await leaving.upload_tail()
    monkeypatch.undo()
    await node.stop()
