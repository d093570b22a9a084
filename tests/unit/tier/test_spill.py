"""The object store is away for longer than the ring lasts: the oldest records are spilled, and nobody notices."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.support.tier_node import MIB, QUIET, TierNode, eventually, read_all, read_bucket, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.clock import SystemClock
from headrace.errors import StoreUnavailable
from headrace.log.partition import PartitionLog

BUSY = msgspec.structs.replace(QUIET, upload_interval_ms=20)
RING = 16 * MIB
RECORD = 200_000


class RefusingStore(MemoryBlobStore):
    """Refuses every object with these bytes in it; everything with the empty string."""

    refused: bytes | None = None

    async def put(self, key, chunks) -> None:  # type: ignore[no-untyped-def]  # as the port
        if self.refused is not None and any(self.refused in bytes(chunk) for chunk in chunks):
            raise StoreUnavailable("503")
        await super().put(key, chunks)


def make_node(directory: Path, blobs: MemoryBlobStore, *, spill_bytes: int) -> TierNode:
    return TierNode(directory, blobs, BUSY, wal_bytes=RING, spill_bytes=spill_bytes)


def value_of(number: int) -> str:
    return f"{number:06d}".ljust(RECORD, "x")


async def fill(node: TierNode, partition: PartitionLog, numbers: range, *, patience_s: float = 60.0) -> int:
    """As a producer would: one that is paused waits. Gives how many were written before it lost its patience."""
    for written, number in enumerate(numbers):
        try:
            async with asyncio.timeout(patience_s):
                while not node.logs.can_take(RECORD):
                    resumed = asyncio.Event()
                    node.logs.when_room(resumed.set)
                    await resumed.wait()
        except TimeoutError:
            return written
        await node.append(partition, value_of(number))
    return len(numbers)


def spill_files(node: TierNode) -> list[Path]:
    return list(node.logs.directory.glob("spill-*"))


def numbers_of(values: list[str]) -> list[int]:
    return [int(value[:6]) for value in values]


@pytest.mark.requirement("R3.38")
async def test_producers_go_on_far_beyond_the_ring_and_all_is_uploaded_after(tmp_path: Path) -> None:
    blobs = RefusingStore(SystemClock())
    node = await make_node(tmp_path, blobs, spill_bytes=256 * MIB).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    blobs.refused = b""
    count = 3 * RING // RECORD
    await fill(node, partition, range(count))
    assert node.logs.spill.used_bytes > RING
    assert numbers_of(values_of(await read_all(partition))) == list(range(count))
    await node.restart()
    partition = node.topics.partition("t", 0)
    assert numbers_of(values_of(await read_all(partition))) == list(range(count))
    await node.crash()
    await node.start()
    partition = node.topics.partition("t", 0)
    assert partition.high_watermark == count
    blobs.refused = None
    await fill(node, partition, range(count, count + 20))
    await eventually(lambda: partition.uploaded_end == count + 20)
    await eventually(lambda: not spill_files(node))
    await node.tier.ledger.write_pending()
    assert numbers_of(values_of(await read_bucket(blobs, "t", 0))) == list(range(count + 20))
    await eventually(lambda: node.tier.metrics.tier_spill_bytes == 0)
    assert not node.faults
    await node.stop()


async def test_a_full_spill_pauses_producers_until_the_store_is_back(tmp_path: Path) -> None:
    blobs = RefusingStore(SystemClock())
    node = await make_node(tmp_path, blobs, spill_bytes=8 * MIB).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    blobs.refused = b""
    written = await fill(node, partition, range(3 * RING // RECORD), patience_s=1.5)
    assert node.logs.spill.used_bytes <= 8 * MIB
    assert written * RECORD < RING + 8 * MIB
    resumed = asyncio.Event()
    node.logs.when_room(resumed.set)
    blobs.refused = None
    async with asyncio.timeout(60):
        await resumed.wait()
    await eventually(lambda: partition.uploaded_end == written)
    assert numbers_of(values_of(await read_all(partition))) == list(range(written))
    await node.stop()


async def test_one_partition_that_is_refused_does_not_pin_the_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own records alone are copied; everybody else's go to object storage as ever."""
    # A disk so slow that the store seems to hang would have the others' copied, too.
    monkeypatch.setattr("headrace.tier.ring_keeper._STALLED_MS", 3_600_000)
    blobs = RefusingStore(SystemClock())
    settings = msgspec.structs.replace(BUSY, upload_stream_bytes=1024)  # Each partition in an object of its own.
    node = await TierNode(tmp_path, blobs, settings, wal_bytes=RING, spill_bytes=256 * MIB).start()
    stuck, good = (await node.topics.create("t", partitions=2)).partitions
    blobs.refused = b"poison"
    await node.append(stuck, "poison" * 1000)
    count = 3 * RING // RECORD
    await fill(node, good, range(count))
    assert 0 < node.logs.spill.used_bytes < RING // 4
    assert values_of(await read_all(stuck)) == ["poison" * 1000]
    blobs.refused = None
    await eventually(lambda: stuck.uploaded_end == 1 and good.uploaded_end == count)
    await eventually(lambda: not spill_files(node))
    assert numbers_of(values_of(await read_all(good))) == list(range(count))
    await node.stop()


async def test_object_durability_is_acknowledged_from_the_spill(tmp_path: Path) -> None:
    """Records that nobody was told about yet are spilled too: their producers still wait for them."""
    blobs = RefusingStore(SystemClock())
    node = await make_node(tmp_path, blobs, spill_bytes=256 * MIB).start()
    waiting = (await node.topics.create("o", partitions=1, config={"durability": "object"})).partitions[0]
    other = (await node.topics.create("t", partitions=1)).partitions[0]
    blobs.refused = b""
    promise = node.send(waiting, "patience")
    count = 2 * RING // RECORD
    await fill(node, other, range(count))
    assert node.logs.wal.trim_lsn > 0
    assert waiting.high_watermark == 0
    blobs.refused = None
    async with asyncio.timeout(60):
        assert (await promise).base_offset == 0
    assert values_of(await read_all(waiting)) == ["patience"]
    await node.stop()
