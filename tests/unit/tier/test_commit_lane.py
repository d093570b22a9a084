"""`durability=object`: windows overlap, are committed in order, and fail together."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.tier_node import QUIET, TierNode, eventually, read_all, read_bucket, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.clock import SystemClock
from headrace.errors import StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.tier.format.keys import DATA
from headrace.tier.keeping import Keeping

EAGER = msgspec.structs.replace(QUIET, commit_linger_ms=0, commit_concurrency=2)


class GatedStore(MemoryBlobStore):
    """PUTs of data wait at a gate each, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.gates: list[asyncio.Future[None]] = []

    async def put(self, key, chunks) -> None:  # type: ignore[no-untyped-def]  # as the port
        if key.startswith(DATA):
            gate = asyncio.get_running_loop().create_future()
            self.gates.append(gate)
            await gate
        await super().put(key, chunks)


class ShakyStore(MemoryBlobStore):
    """PUTs overtake each other, and some fail."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(SystemClock())
        self._dice = dice

    async def put(self, key, chunks) -> None:  # type: ignore[no-untyped-def]  # as the port
        await turn_of_the_loop(self._dice.randrange(50))
        if key.startswith(DATA) and self._dice.random() < 0.2:
            raise StoreUnavailable("503")
        await super().put(key, chunks)


async def start(directory: Path, blobs: MemoryBlobStore) -> tuple[TierNode, PartitionLog]:
    node = await TierNode(directory, blobs, EAGER).start()
    topic = await node.topics.create("o", partitions=1, config={"durability": "object"})
    return node, topic.partitions[0]


async def test_a_record_does_not_wait_for_the_upload_before_it_and_is_not_acknowledged_ahead_of_it(
    tmp_path: Path,
) -> None:
    blobs = GatedStore()
    node, partition = await start(tmp_path, blobs)
    first = asyncio.ensure_future(node.append(partition, "first"))
    await eventually(lambda: len(blobs.gates) == 1)
    second = asyncio.ensure_future(node.append(partition, "second"))
    await eventually(lambda: len(blobs.gates) == 2)
    third = asyncio.ensure_future(node.append(partition, "third"))
    blobs.gates[1].set_result(None)
    await eventually(lambda: partition.durable_end == 3)
    assert not any(each.done() for each in (first, second, third))
    assert (partition.high_watermark, len(blobs.gates)) == (0, 2)
    blobs.gates[0].set_result(None)
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]
    await eventually(lambda: len(blobs.gates) == 3)
    blobs.gates[2].set_result(None)
    assert (await third).base_offset == 2
    await node.tier.ledger.write_pending()
    assert values_of(await read_bucket(blobs, "o", 0)) == ["first", "second", "third"]
    await eventually(lambda: partition not in node.tier.uploader._commit_lane)
    await node.stop()


async def test_windows_behind_a_failed_one_are_brought_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.tier.commit_lane._RETRY_S", 0.0)
    blobs = GatedStore()
    node, partition = await start(tmp_path, blobs)
    first = asyncio.ensure_future(node.append(partition, "first"))
    await eventually(lambda: len(blobs.gates) == 1)
    second = asyncio.ensure_future(node.append(partition, "second"))
    await eventually(lambda: len(blobs.gates) == 2)
    blobs.gates[1].set_result(None)
    blobs.gates[0].set_exception(StoreUnavailable("503"))
    await eventually(lambda: len(blobs.gates) == 3)
    assert partition.uploaded_end == 0
    blobs.gates[2].set_result(None)
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]
    await node.tier.ledger.write_pending()
    assert values_of(await read_bucket(blobs, "o", 0)) == ["first", "second"]
    await node.stop()


@pytest.mark.parametrize("seed", range(4))
async def test_overtaking_and_failing_uploads_keep_every_record_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("headrace.tier.commit_lane._RETRY_S", 0.0)
    dice = random.Random(seed)
    blobs = ShakyStore(dice)
    node, partition = await start(tmp_path, blobs)

    async def produce(name: int) -> list[tuple[int, str]]:
        placed = []
        for number in range(20):
            value = f"{name}-{number}"
            placed.append(((await node.append(partition, value)).base_offset, value))
        return placed

    async with asyncio.timeout(120):
        written = await asyncio.gather(*map(produce, range(6)))
    expected = [value for _, value in sorted(each for placed in written for each in placed)]
    assert values_of(await read_all(partition)) == expected
    await node.tier.ledger.write_pending()
    assert values_of(await read_bucket(blobs, "o", 0)) == expected
    assert not node.faults
    await node.stop()


def test_windows_are_as_far_apart_as_all_brokers_together_need() -> None:
    """Two rows for a segment, five thousand a second; never so far that a producer would notice, nor at all where one is alone."""
    shared = Keeping(is_alone=False, broker_count=lambda: 3)
    assert [shared.window_ms(count) for count in (1, 8, 100, 1000)] == [1, 9, 120, 250]
    assert Keeping().window_ms(1000) == 0


async def test_a_window_opens_no_sooner_behind_another_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, partition = await start(tmp_path, MemoryBlobStore(SystemClock()))
    lane = node.tier.uploader._commit_lane
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    lane._least_window_ms = lambda count: 100_000 * count
    lane._opened_ms = lane._first_wanted_ms = lane._clock.monotonic_ms()
    lane._wanted[partition] = None
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", note)
        await lane._linger()
        lane._opened_ms -= 200_000
        await lane._linger()
    assert len(waits) == 1
    assert 99 < waits[0] <= 100
    lane._wanted.clear()
    await node.stop()
