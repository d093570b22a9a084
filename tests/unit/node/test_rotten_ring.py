"""Rot in the ring: what object storage has of a damaged range is known as if it had been read, and what nobody has is news."""

import random
from pathlib import Path

import pytest
from tests.support.metastores import ManualClock
from tests.support.simulated_store import SimulatedStore
from tests.support.tier_node import TierNode
from tests.unit.node.test_short_ring import abandon, send

from headrace.errors import OutOfOrderSequence, StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.records.builder import build_marker

COORDINATOR_EPOCH = 0x5EED5EED
"""To be found in the ring."""


async def _started(tmp_path: Path) -> tuple[TierNode, PartitionLog, SimulatedStore]:
    blobs = SimulatedStore(ManualClock(), random.Random(0))
    node = await TierNode(tmp_path, blobs).start()
    return node, (await node.topics.create("t", partitions=1)).partitions[0], blobs


async def _sent(node: TierNode, partition: PartitionLog, *sequences: int) -> None:
    """A group each."""
    for sequence in sequences:
        send(partition, sequence)
        await node.logs.wal.drain()


async def _marked(node: TierNode, partition: PartitionLog, producer_id: int) -> None:
    marker = build_marker(
        is_commit=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=COORDINATOR_EPOCH, now_ms=1
    )
    await node.produce.append_marker(partition, marker)


async def _crashed_with_rot(node: TierNode, *values: bytes) -> None:
    """The ring has one bit wrong in each batch that has one of these values."""
    await node.crash()
    ring = node.directory / "wal" / "ring"
    data = bytearray(ring.read_bytes())
    for value in values:
        assert data.count(value) == 1
        data[data.index(value)] ^= 1
    ring.write_bytes(data)


async def _again(node: TierNode) -> PartitionLog:
    await node.start()
    assert node.logs.recovery.quarantined
    assert not node.lead.is_ring_lost
    return node.topics.partition("t", 0)


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_retry_of_what_rotted_in_the_ring_and_was_uploaded_is_recognised(tmp_path: Path, lost: int) -> None:
    """Between two others it was refused as out of order; as the last one of its producer it was stored twice."""
    node, partition, _ = await _started(tmp_path)
    await _sent(node, partition, *range(lost + 1))
    await node.upload()
    await _sent(node, partition, *range(lost + 1, 3))
    send(partition, 0, producer_id=8)
    await node.logs.wal.drain()
    await _crashed_with_rot(node, b"%d of 7" % lost)
    for _ in range(2):
        partition = await _again(node)
        for sequence in range(3):
            assert send(partition, sequence).is_duplicate
        await node.crash()


async def test_the_bucket_must_be_there_to_tell_of_producers_that_rot_has_hidden(tmp_path: Path) -> None:
    node, partition, blobs = await _started(tmp_path)
    await _sent(node, partition, 0, 1)
    await node.upload()
    send(partition, 0, producer_id=8)
    await node.logs.wal.drain()
    await _crashed_with_rot(node, b"1 of 7")
    blobs.is_down = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="WAL is new, damaged"):
            await node.start()
        await abandon(node)
    blobs.is_down = False
    assert send(await _again(node), 1).is_duplicate
    await node.stop()


async def test_rot_in_what_was_not_uploaded_needs_no_bucket(tmp_path: Path) -> None:
    node, partition, blobs = await _started(tmp_path)
    await _sent(node, partition, 0)
    await node.upload()
    await _sent(node, partition, 1)
    send(partition, 0, producer_id=8)
    await node.logs.wal.drain()
    await _crashed_with_rot(node, b"1 of 7")
    blobs.is_down = True
    assert not send(await _again(node), 1).is_duplicate
    await node.stop()


async def test_a_retry_of_what_rotted_and_nobody_has_is_not_answered_as_a_duplicate(tmp_path: Path) -> None:
    """Also where the checkpoint knows its producer: an `object` topic would acknowledge what is lost."""
    node, partition, _ = await _started(tmp_path)
    await _sent(node, partition, 0, 1, 2)
    send(partition, 0, producer_id=8)
    await node.logs.checkpoint()
    await _crashed_with_rot(node, b"1 of 7", b"0 of 8")
    partition = await _again(node)
    assert send(partition, 0).is_duplicate
    assert send(partition, 2).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        send(partition, 1)
    assert not send(partition, 0, producer_id=8).is_duplicate
    await node.stop()


@pytest.mark.parametrize("is_begun_lost", [True, False])
async def test_transactions_of_what_rotted_and_was_uploaded_are_decided_as_they_were(
    tmp_path: Path, is_begun_lost: bool
) -> None:
    node, partition, _ = await _started(tmp_path)
    send(partition, 0, producer_id=8, is_open=True)
    await node.logs.wal.drain()
    if is_begun_lost:
        await node.upload()
    await _marked(node, partition, 8)
    if not is_begun_lost:
        await node.upload()
    await _sent(node, partition, 0)
    await _crashed_with_rot(node, b"0 of 8" if is_begun_lost else COORDINATOR_EPOCH.to_bytes(4))
    partition = await _again(node)
    assert partition.last_stable_offset == partition.high_watermark
    assert [each.first_offset for each in partition.aborted_between(0, 10)] == [0]
    await node.stop()
