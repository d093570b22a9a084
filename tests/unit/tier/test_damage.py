"""Objects that are damaged or lost: what is in front is served, the rest is refused by name, and everybody can see it."""

from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_tier, records_of, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer
from headrace.clock import SystemClock
from headrace.errors import DamagedRecords
from headrace.log.partition import PartitionLog
from headrace.records.batch import bytes_of, stamp
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_records
from headrace.telemetry.problems import Problems
from headrace.tier.format.object import Kind, ObjectBuilder, Run, salvage


class Flaky(MemoryBlobStore):
    """Flips a bit of every body it gives, as long as `spoiled` lasts."""

    spoiled = 0

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        data = bytearray(await super().get_range(key, position, length))
        if self.spoiled:
            self.spoiled -= 1
            data[len(data) // 2] ^= 1
        return data


async def uploaded(tmp_path: Path, values: list[str], blobs: MemoryBlobStore) -> tuple[TierNode, PartitionLog]:
    """A node whose records are in one object, a batch each, with none left in memory."""
    node = await TierNode(tmp_path, blobs, problems=Problems()).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    for value in values:
        await node.append(partition, value)
    await node.upload()
    return node, partition


async def data_key(node: TierNode) -> str:
    (info,) = [info async for info in node.blobs.list("data/")]
    return info.key


async def damage(node: TierNode, value: str) -> bytes:
    """Change the record with `value` in its object; gives what was there."""
    key = await data_key(node)
    right = bytes(await node.blobs.get(key))
    await node.blobs.put(key, [right.replace(value.encode(), value.upper().encode())])
    node.tier._cache.forget(key)
    return right


async def read_from(node: TierNode, partition: PartitionLog, offset: int) -> list[str]:
    pieces = await node.tier.reader.read(partition.topic_id, 0, offset=offset, end_offset=9, max_bytes=1 << 20)
    return values_of([each for each in records_of(list(map(bytes_of, pieces))) if each.offset >= offset])


async def test_records_in_front_of_damage_are_served_and_the_rest_is_refused_by_name(tmp_path: Path) -> None:
    node, partition = await uploaded(tmp_path, ["one", "two", "three", "four"], MemoryBlobStore(SystemClock()))
    await damage(node, "three")
    assert await read_from(node, partition, 0) == ["one", "two"]
    assert await read_from(node, partition, 1) == ["two"]
    with pytest.raises(DamagedRecords, match=r"t-0: offsets 2 to 3 cannot be read: data/.*\.hro"):
        await read_from(node, partition, 2)
    await node.stop()


async def test_damage_stands_on_the_board_until_it_is_mended(tmp_path: Path) -> None:
    node, partition = await uploaded(tmp_path, ["one", "two"], MemoryBlobStore(SystemClock()))
    right = await damage(node, "two")
    with pytest.raises(DamagedRecords):
        await read_from(node, partition, 1)
    (told,) = node.problems.standing()
    assert told.startswith("t-0: offsets 1 to 1 cannot be read: data/")
    assert told.endswith("or give them up with `headrace tier skip t 0 1`")
    assert node.tier.metrics.tier_damaged_ranges == 1
    await node.blobs.put(await data_key(node), [right])
    node.tier._cache.forget(await data_key(node))
    assert await read_from(node, partition, 1) == ["two"]
    assert node.problems.standing() == ()
    assert node.tier.metrics.tier_damaged_ranges == 0
    await node.stop()


@pytest.mark.parametrize("cut", ["lost", "cut short", "without a footer"])
async def test_an_object_that_is_lost_or_cut_short_is_named(tmp_path: Path, cut: str) -> None:
    node, partition = await uploaded(tmp_path, ["one", "two"], MemoryBlobStore(SystemClock()))
    key = await data_key(node)
    right = bytes(await node.blobs.get(key))
    if cut == "lost":
        await node.blobs.delete([key])
    else:
        await node.blobs.put(key, [right[: len(right) // 2] if cut == "cut short" else right[:-8] + bytes(8)])
    node.tier._cache.forget(key)
    with pytest.raises(DamagedRecords, match=rf"t-0: offsets 0 to 1 cannot be read: {key}"):
        await read_tier(node, partition)
    assert len(node.problems.standing()) == 1
    await node.stop()


@pytest.mark.parametrize("is_footer_known", [True, False])
async def test_one_bad_answer_of_the_store_is_not_damage(tmp_path: Path, is_footer_known: bool) -> None:
    blobs = Flaky(SystemClock())
    node, partition = await uploaded(tmp_path, ["one", "two", "three"], blobs)
    if not is_footer_known:
        node.tier._cache.forget(await data_key(node))
    blobs.spoiled = 1
    assert values_of(await read_tier(node, partition)) == ["one", "two", "three"]
    assert node.problems.standing() == ()
    await node.stop()


# -- what can be saved of a run ------------------------------------------------------------------------------------------


def run_of(count: int) -> tuple[Run, bytes]:
    builder = ObjectBuilder(Kind.STREAM)
    batches = []
    for offset in range(count):
        batch = build_batch([NewRecord(value=b"value %d" % offset)], now_ms=1)
        stamp(batch, offset, 3)
        batches.append(batch)
    (run,) = builder.add(b"t" * 16, 0, batches)  # type: ignore[arg-type]  # ids as plain values
    return run, b"".join(batches)


def test_no_damaged_batch_is_ever_saved() -> None:
    """Whatever byte is changed, every batch that is saved is one that was written, and nearly all are saved."""
    run, right = run_of(6)
    size = len(right) // 6
    whole = {right[start : start + size] for start in range(0, len(right), size)}
    for position in range(len(right)):
        data = bytearray(right)
        data[position] ^= 0x40
        saved = salvage(run, data)
        kept = [bytes(batch) for batch in (*saved.front, *saved.back)]
        assert set(kept) <= whole, position
        assert len(saved.front) == position // size
        offsets = [record.offset for batch in kept for record in read_records(batch)]
        assert offsets == sorted(set(offsets))
        assert saved.front_end <= saved.back_start
