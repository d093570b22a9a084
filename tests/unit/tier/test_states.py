"""The disk is lost: what object storage has tells which producers wrote it, also what came behind the last saved state."""

import shutil
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode

from headrace.errors import OutOfOrderSequence, ProducerFenced, StaleEpoch
from headrace.log.partition import Appended, PartitionLog
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

PRODUCER = 7


def _send(partition: PartitionLog, sequence: int, *, epoch: int = 0, is_transactional: bool = False) -> Appended:
    batch = build_batch(
        [NewRecord(value=b"%d" % sequence)],
        now_ms=1,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return partition.append(batch, now_ms=1)


async def _end(node: TierNode, partition: PartitionLog, coordinator_epoch: int) -> None:
    marker = build_marker(
        is_commit=True, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=coordinator_epoch, now_ms=1
    )
    await node.produce.append_marker(partition, marker)


async def _node(path: Path) -> tuple[TierNode, PartitionLog]:
    node = await TierNode(path).start()
    return node, (await node.topics.create("t", partitions=1)).partitions[0]


async def _upload(node: TierNode) -> None:
    await node.logs.wal.drain()
    await node.upload()


async def _lose_disk(node: TierNode) -> PartitionLog:
    await node.crash()
    shutil.rmtree(node.directory / "wal")
    await node.start()
    return node.topics.partition("t", 0)


@pytest.mark.parametrize("is_state_saved", [True, False])
async def test_a_retry_of_what_was_uploaded_since_the_saved_state_is_recognised(
    tmp_path: Path, is_state_saved: bool
) -> None:
    node, partition = await _node(tmp_path)
    for sequence in range(3):
        _send(partition, sequence)
    await _upload(node)
    if is_state_saved:
        await node.save_state()
    for sequence in range(3, 6):
        _send(partition, sequence)
    await _upload(node)
    for _ in range(2):
        partition = await _lose_disk(node)
        for sequence in range(1, 6):  # The last five, some of them in the saved state.
            assert _send(partition, sequence) == (sequence, sequence + 1, -1, True)
        with pytest.raises(OutOfOrderSequence):
            _send(partition, 7)
    assert not _send(partition, 6).is_duplicate
    await node.stop()


async def test_a_retry_of_what_was_lost_with_the_disk_is_stored(tmp_path: Path) -> None:
    """The saved state knows of it, and nobody has it: a duplicate's answer would be a lie."""
    node, partition = await _node(tmp_path)
    _send(partition, 0)
    await _upload(node)
    _send(partition, 1)
    await node.logs.wal.drain()
    await node.save_state()
    partition = await _lose_disk(node)
    assert _send(partition, 0).is_duplicate
    again = _send(partition, 1)
    assert not again.is_duplicate
    await _upload(node)
    partition = await _lose_disk(node)
    assert _send(partition, 1) == (again.base_offset, again.end_offset, -1, True)
    await node.stop()


async def test_who_was_fenced_since_the_saved_state_stays_fenced(tmp_path: Path) -> None:
    node, partition = await _node(tmp_path)
    _send(partition, 0)
    await _upload(node)
    await node.save_state()
    _send(partition, 0, epoch=1)
    await _upload(node)
    partition = await _lose_disk(node)
    with pytest.raises(ProducerFenced):
        _send(partition, 1)
    assert _send(partition, 0, epoch=1).is_duplicate
    await node.stop()


async def test_a_former_coordinator_stays_fenced(tmp_path: Path) -> None:
    node, partition = await _node(tmp_path)
    await _upload(node)
    await node.save_state()
    _send(partition, 0, is_transactional=True)
    await _end(node, partition, 5)
    await _upload(node)
    partition = await _lose_disk(node)
    with pytest.raises(StaleEpoch):
        await _end(node, partition, 4)
    _send(partition, 1, is_transactional=True)
    await _end(node, partition, 6)
    assert partition.last_stable_offset == partition.high_watermark
    await node.stop()


async def test_a_wal_without_checkpoint_knows_the_last_five_of_both(tmp_path: Path) -> None:
    node, partition = await _node(tmp_path)
    for sequence in range(3):
        _send(partition, sequence)
    await _upload(node)
    partition = await _lose_disk(node)
    for sequence in range(3, 5):
        _send(partition, sequence)
    await node.logs.wal.drain()
    await node.crash()
    (node.directory / "wal" / "checkpoint").unlink()
    await node.start()
    partition = node.topics.partition("t", 0)
    for sequence in range(5):
        assert _send(partition, sequence).is_duplicate
    await node.stop()
