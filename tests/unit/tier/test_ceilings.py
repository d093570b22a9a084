"""Ceilings in the bucket: near, there before their offsets are given out, and never in the way of producers."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, eventually

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer
from headrace.clock import SystemClock
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Corrupted, Overloaded, StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.log.store import CEILING_STEP
from headrace.node.metastore import METASTORE_FILE
from headrace.tier.ceilings import newest_pictures
from headrace.tier.format import keys
from headrace.tier.format.ceilings import CeilingPicture, decode_ceilings, encode_ceilings
from headrace.tier.restore import restore_metastore

FAR = 1 << 28
GOLDEN = Path(__file__).parents[2] / "golden" / "tier" / "ceilings-v1.hrl"
PICTURE = CeilingPicture(
    broker_id=1,
    broker_epoch=7,
    created_ms=1_700_000_000_000,
    topics={"00010203-0405-0607-0809-0a0b0c0d0e0f": [65536, None, 1 << 40]},
)


class CeilingStore(MemoryBlobStore):
    """Lets ceilings wait, or refuses them; counts them."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.is_down = False
        self.puts = 0

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        if key.startswith(keys.CEILINGS):
            await self.is_open.wait()
            if self.is_down:
                raise StoreUnavailable("503")
            self.puts += 1
        await super().put_if_absent(key, chunks)


async def recorded(node: TierNode, partition: PartitionLog) -> int:
    (picture,) = await newest_pictures(node.blobs)
    (row,) = picture.topics.values()
    return row[partition.index] or 0


async def use(node: TierNode, partition: PartitionLog, count: int) -> int:
    return (await node.append(partition, *["x"] * count)).end_offset


async def restored(node: TierNode, directory: Path, *, was_store_down: bool = False) -> TierNode:
    """Another disk, another metastore, the same bucket."""
    store = await EmbeddedMetastore.open(directory / METASTORE_FILE)
    await restore_metastore(node.blobs, store, leader="node", clock=node.clock, was_store_down=was_store_down)
    await store.close()
    return await TierNode(directory, node.blobs).start()


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_a_restore_goes_on_at_the_near_ceiling(tmp_path: Path, has_snapshot: bool) -> None:
    node = await TierNode(tmp_path / "first", CeilingStore()).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await use(node, partition, 100)
    await node.upload()
    if has_snapshot:
        await node.save_state()
    given = await use(node, partition, 50_000)
    await eventually(lambda: partition.ceiling > CEILING_STEP)
    await node.crash()
    (tmp_path / "second").mkdir()
    again = await restored(node, tmp_path / "second")
    partition = again.topics.partition("t", 0)
    assert given <= partition.end_offset <= given + CEILING_STEP
    await again.stop()


@pytest.mark.parametrize("damage", ["missing", "damaged", "behind", "store was down"])
async def test_without_a_bound_in_the_bucket_offsets_go_on_far_above(tmp_path: Path, damage: str) -> None:
    """`behind`: more was uploaded than the newest record of ceilings knows of."""
    blobs = CeilingStore()
    node = await TierNode(tmp_path / "first", blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await use(node, partition, 10)
    await eventually(lambda: blobs.puts >= 1)
    if damage == "behind":
        blobs.is_down = True
        partition.ceiling = FAR  # As an outage of the store leaves it.
        end = await use(node, partition, CEILING_STEP + 1)
    else:
        end = partition.end_offset
    await node.upload()
    await node.crash()
    for info in [info async for info in blobs.list(keys.CEILINGS)]:
        if damage == "missing":
            await blobs.delete([info.key])
        elif damage == "damaged":
            await blobs.put(info.key, [b"#headrace ceilings 1 00000000\n{}\n"])
    blobs.is_down = False
    (tmp_path / "second").mkdir()
    again = await restored(node, tmp_path / "second", was_store_down=damage == "store was down")
    assert again.topics.partition("t", 0).end_offset == end + FAR
    await again.stop()


async def test_topics_that_only_a_snapshot_knows_go_on_above_what_they_gave(tmp_path: Path) -> None:
    """Nothing of them was uploaded, and their ceiling has risen since the snapshot."""
    node = await TierNode(tmp_path / "first", CeilingStore()).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.save_state()
    for _ in range(3):
        end = await use(node, partition, 30_000)
        await eventually(lambda: partition.ceiling - partition.end_offset > CEILING_STEP // 2)
    await node.crash()
    (tmp_path / "second").mkdir()
    again = await restored(node, tmp_path / "second")
    assert again.topics.partition("t", 0).end_offset >= end > CEILING_STEP
    await again.stop()


async def test_the_bucket_has_a_ceiling_before_its_offsets_are_given_out(tmp_path: Path) -> None:
    blobs = CeilingStore()
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await eventually(lambda: blobs.puts >= 1)
    blobs.is_open.clear()
    await use(node, partition, CEILING_STEP // 2 + 1)  # Asks for more, and has room still.
    await use(node, partition, CEILING_STEP // 2 - 1)
    assert partition.end_offset == partition.ceiling == CEILING_STEP
    with pytest.raises(Overloaded):
        await use(node, partition, 1)
    blobs.is_open.set()
    await eventually(lambda: partition.ceiling > CEILING_STEP)
    assert await recorded(node, partition) >= partition.ceiling
    await use(node, partition, 1)
    await node.stop()


async def test_a_store_that_is_down_stops_nobody_and_is_said(tmp_path: Path) -> None:
    blobs = CeilingStore()
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await eventually(lambda: blobs.puts >= 1)
    blobs.is_down = True
    for _ in range(4):
        await use(node, partition, CEILING_STEP // 2)
        await eventually(lambda: partition.ceiling - partition.end_offset >= CEILING_STEP // 2)
    assert partition.end_offset == 2 * CEILING_STEP
    assert any("tier restore --store-was-down" in each for each in node.problems.standing())
    blobs.is_down = False
    await eventually(lambda: not node.problems.standing())
    assert await recorded(node, partition) >= partition.ceiling
    await node.stop()


async def test_a_store_that_does_not_answer_stops_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.tier.ceilings._WAIT_S", 0.05)
    blobs = CeilingStore()
    node = await TierNode(tmp_path, blobs).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await eventually(lambda: blobs.puts >= 1)
    blobs.is_open.clear()
    await use(node, partition, CEILING_STEP)
    await eventually(lambda: partition.ceiling > CEILING_STEP)
    await use(node, partition, 10)
    assert node.problems.standing()
    blobs.is_open.set()
    await eventually(lambda: not node.problems.standing())
    await node.stop()


async def test_a_batch_larger_than_a_step_gets_its_room(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, CeilingStore()).start()
    config = {"max.message.bytes": str(16 << 20)}
    partition = (await node.topics.create("t", partitions=1, config=config)).partitions[0]
    for _ in range(10):
        try:
            await use(node, partition, CEILING_STEP * 5)
            break
        except Overloaded:
            await eventually(lambda: node.topics.ceilings.task is None)
    assert partition.end_offset == CEILING_STEP * 5
    await node.stop()


async def test_many_partitions_share_one_object(tmp_path: Path) -> None:
    blobs = CeilingStore()
    node = await TierNode(tmp_path, blobs).start()
    topic = await node.topics.create("t", partitions=1000)
    await eventually(lambda: blobs.puts == 1)
    for partition in topic.partitions:
        node.topics.ceilings.want(partition)
    assert node.topics.ceilings.task is not None
    await node.topics.ceilings.task
    assert blobs.puts == 2
    assert await recorded(node, topic.partitions[-1]) == CEILING_STEP
    await node.stop()


async def test_old_records_of_ceilings_are_deleted(tmp_path: Path) -> None:
    blobs = CeilingStore()
    for _ in range(5):
        node = await TierNode(tmp_path, blobs).start()
        if node.topics.find("t") is None:
            await node.topics.create("t", partitions=1)
        await eventually(partial(_is_written, node))
        await node.stop()
    assert len([info async for info in blobs.list(keys.CEILINGS)]) == 2


def _is_written(node: TierNode) -> bool:
    return node.tier.ceilings._written == node.tier.ceilings._wanted > 0


def test_a_picture_survives_its_encoding() -> None:
    assert decode_ceilings(encode_ceilings(PICTURE)) == PICTURE
    assert [PICTURE.ceiling("00010203-0405-0607-0809-0a0b0c0d0e0f", index) for index in range(4)] == [
        65536,
        None,
        1 << 40,
        None,
    ]
    assert PICTURE.ceiling("no such topic", 0) is None


def test_the_golden_picture_is_still_read() -> None:
    assert decode_ceilings(GOLDEN.read_bytes()) == PICTURE
    assert encode_ceilings(PICTURE) == GOLDEN.read_bytes()


def test_a_picture_cut_short_anywhere_is_refused() -> None:
    data = encode_ceilings(PICTURE)
    for size in range(len(data) - 1):
        with pytest.raises(Corrupted):
            decode_ceilings(data[:size])
