"""A ring that ends before its time: cut short, or an older copy. It is said, and nothing that is left is wrong for it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_all, values_of

from headrace.log.partition import Appended, PartitionLog
from headrace.log.shortfall import Witness, shortfall
from headrace.log.store import CEILING_STEP
from headrace.log.wal.format import DATA_START
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

PRODUCER = 7


def send(partition: PartitionLog, sequence: int, *, producer_id: int = PRODUCER, is_open: bool = False) -> Appended:
    batch = build_batch(
        [NewRecord(value=b"%d of %d" % (sequence, producer_id))],
        now_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_open,
    )
    return partition.append(batch, now_ms=1)


async def fill(node: TierNode) -> PartitionLog:
    """Two records that every copy has; then, behind `older`, what only the ring of the end has."""
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    send(partition, 0)
    send(partition, 0, producer_id=8, is_open=True)
    await node.logs.wal.drain()
    return partition


async def lose_the_end(node: TierNode, tmp_path: Path, what: str) -> None:
    """Leaves a stopped or killed node whose ring lacks the record of sequence 1."""
    partition = await fill(node)
    older = tmp_path / "older"
    await node.logs.checkpoint()
    shutil.copytree(tmp_path / "wal", older)
    end = node.logs.wal.durable_lsn
    send(partition, 1)
    await node.logs.wal.drain()
    if what == "uploaded since":
        await node.upload()
        send(partition, 2)
        await node.logs.wal.drain()
        await node.crash()
    elif what == "stopped since":
        await node.stop()
    else:
        await node.save_state()
        await node.crash()
    if what == "cut":
        cut(tmp_path / "wal" / "ring", DATA_START + end)
    elif what == "older ring":
        shutil.copy(older / "ring", tmp_path / "wal" / "ring")
    else:
        for name in ("ring", "checkpoint"):
            shutil.copy(older / name, tmp_path / "wal" / name)


def cut(ring: Path, position: int) -> None:
    data = ring.read_bytes()
    ring.write_bytes(data[:position].ljust(len(data), b"\0"))


LOSSES = ["cut", "older ring", "uploaded since", "stopped since"]


@pytest.mark.parametrize("what", LOSSES)
async def test_a_ring_that_ends_too_early_is_said_and_offsets_go_on_above_it(tmp_path: Path, what: str) -> None:
    node = await TierNode(tmp_path).start()
    await lose_the_end(node, tmp_path, what)
    await node.start()
    partition = node.topics.partition("t", 0)
    assert node.lead.is_ring_lost
    assert any("has lost its end" in each for each in node.problems.standing())
    assert any("ring" in each.reason for each in node.logs.recovery.quarantined)
    assert partition.end_offset >= CEILING_STEP
    kept = ["0 of 7", "0 of 8", "1 of 7"] if what == "uploaded since" else ["0 of 7", "0 of 8"]
    assert values_of(await read_all(partition)) == kept
    await node.stop()
    # Once accounted for, it is a ring like any other.
    await node.start()
    assert not node.lead.is_ring_lost
    assert not node.logs.recovery.quarantined
    await node.stop()


@pytest.mark.parametrize("what", LOSSES)
async def test_retries_and_open_transactions_are_right_after_the_end_of_the_ring_was_lost(
    tmp_path: Path, what: str
) -> None:
    """Also after the next kill: what is appended now lies at addresses that the old checkpoint claims to know."""
    node = await TierNode(tmp_path).start()
    await lose_the_end(node, tmp_path, what)
    await node.start()
    partition = node.topics.partition("t", 0)
    assert send(partition, 0).is_duplicate
    again = send(partition, 1)
    assert again.is_duplicate == (what == "uploaded since"), "what was lost is news, what is there is not"
    opened = send(partition, 0, producer_id=9, is_open=True)
    await node.logs.wal.drain()
    for _ in range(2):
        assert partition.last_stable_offset == 1, "the transaction of producer 8 is still open"
        await node.crash()
        await node.start()
        partition = node.topics.partition("t", 0)
        assert send(partition, 1) == (again.base_offset, again.end_offset, -1, True)
        assert send(partition, 0, producer_id=9, is_open=True) == (opened.base_offset, opened.end_offset, -1, True)
    marker = build_marker(is_commit=False, producer_id=8, producer_epoch=0, coordinator_epoch=0, now_ms=1)
    await node.produce.append_marker(partition, marker)
    assert partition.last_stable_offset == opened.base_offset, "the transaction of producer 9 is still open"
    await node.stop()


@pytest.mark.parametrize("what", LOSSES)
async def test_no_kill_while_a_lost_end_is_accounted_for_forgets_it(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step of the start fails, the next start goes on above the ceiling."""
    node = await TierNode(tmp_path).start()
    await lose_the_end(node, tmp_path, what)
    for place in (
        "headrace.log.store.LogStore.forget_lost",
        "headrace.node.lead.Lead.close_gaps",
        "headrace.tier.states.BrokerStates.restore",
        "headrace.node.lead.Lead.settle",
    ):
        with monkeypatch.context() as patch:
            for after in (False, True):
                patch.setattr(place, dying(resolve(place), after=after))
                with pytest.raises(Died):
                    await node.start()
                patch.undo()
                await abandon(node)
                if place.endswith("settle") and after:
                    break
    await node.start()
    partition = node.topics.partition("t", 0)
    assert (await node.append(partition, "new")).base_offset >= CEILING_STEP
    await node.stop()


class Died(BaseException):
    pass


def resolve(place: str) -> Callable[..., object]:
    module, owner, name = place.rsplit(".", 2)
    found: Callable[..., object] = getattr(getattr(__import__(module, fromlist=[owner]), owner), name)
    return found


def dying(method: Callable[..., object], *, after: bool) -> Callable[..., object]:
    async def died(*arguments: object, **options: object) -> None:
        if after:
            await method(*arguments, **options)  # type: ignore[misc]  # every one of them is awaited
        raise Died

    return died


async def abandon(node: TierNode) -> None:
    await node.topics.ceilings.stop()
    await node.tier.stop()
    await node.lead.rest()
    if hasattr(node.logs, "wal"):
        node.logs.wal._flusher.close()
        if node.logs.wal._idle_timer is not None:
            node.logs.wal._idle_timer.cancel()
    node.logs.file.close()
    await node.metastore.close()


async def test_a_whole_ring_is_not_called_short(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, wal_bytes=8 * 1024 * 1024).start()
    partition = (await node.topics.create("t", partitions=2)).partitions[0]
    for number in range(56):  # Round the ring several times, with checkpoints and trims.
        await node.append(partition, "x" * 500_000)
        await node.upload()
        if number % 7 == 6:
            await (node.crash() if number % 2 else node.stop())
            await node.start()
            assert node.logs.recovery.shortfall is None
            partition = node.topics.partition("t", 0)
    await node.stop()


@pytest.mark.parametrize(
    ("head", "sealed", "missing_end"), [(100, 0, 0), (99, 0, 100), (50, 0, 100), (50, 70, 70), (50, 50, 0)]
)
def test_the_furthest_witness_decides(head: int, sealed: int, missing_end: int) -> None:
    found = shortfall(head, [Witness("a", 100), Witness("b", 90)], sealed_lsn=sealed)
    assert (found.end_lsn if found is not None else 0) == missing_end
    assert found is None or found.start_lsn == head
