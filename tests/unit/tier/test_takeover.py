"""A partition changes hands: the next leader knows of producers and transactions what the former one knew of records that count."""

import asyncio
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tier_node import TierNode, read_bucket, values_of
from tests.unit.tier.format.test_run_state import batch, marker

from headrace.errors import OutOfOrderSequence
from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.transactions import TransactionIndex, TransactionSnapshot
from headrace.records.batch import iterate_batches
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.tier import takeover
from headrace.tier.format import keys
from headrace.tier.format.run_state import COMMITTED, state_of
from headrace.tier.keeping import Keeping

# -- the rules --------------------------------------------------------------------------------------------------------


class Known:
    """What a leader knows that has read every batch."""

    def __init__(self, batches: list[bytes], high_watermark: int) -> None:
        self.producers, self.transactions = Producers(), TransactionIndex()
        for each in batches:
            ((header, _),) = iterate_batches(each)
            self.producers.note(header, header.base_offset)
            (state,) = [state_of([each])]
            if header.is_control:
                self.producers.note_marker(header.producer_id, state.producers[0].coordinator_epoch)
                (row,) = state.transactions
                is_commit = row.kind == COMMITTED
                self.transactions.end(row.producer_id, commit=is_commit, marker_offset=row.offset)
            else:
                self.transactions.note_batch(header.producer_id, header.base_offset, header.is_transactional)
        self.transactions.last_stable_offset(high_watermark)

    def picture(self, end: int, uploaded_end: int) -> PartitionCheckpoint:
        return PartitionCheckpoint(
            b"t" * 16, 0, uploaded_end, end, [(0, 0)], self.producers.snapshot(), self.transactions.snapshot()
        )


def history(events: list[tuple[int, str]]) -> list[bytes]:
    """One batch each: producers write, within transactions or not, and their transactions end."""
    sequences: dict[int, int] = {}
    made: list[bytes] = []
    for offset, (producer, what) in enumerate(events):
        if what in ("commit", "abort"):
            made.append(marker(offset, producer=producer, commit=what == "commit", coordinator_epoch=offset))
            continue
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        made.append(batch(offset, sequence, producer=producer, transactional=what == "transactional"))
    return made


@given(
    events=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from(["plain", "transactional", "transactional", "commit", "abort"])),
        min_size=1,
        max_size=30,
    ),
    data=st.data(),
)
def test_the_next_leader_knows_what_one_that_has_read_everything_knows(
    events: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Whatever the saved state is of, and wherever the objects were cut. Some of what it knew was never uploaded."""
    batches = history(events)
    end = data.draw(st.integers(1, len(batches)), "uploaded in the end")
    saved_end = data.draw(st.integers(0, len(batches)), "end of the log when the state was saved")
    uploaded_end = data.draw(st.integers(0, min(saved_end, end)), "uploaded when the state was saved")
    cuts = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=5), "where runs begin")})
    is_saved = data.draw(st.booleans(), "is there a state")
    picture = Known(batches[:saved_end], uploaded_end).picture(saved_end, uploaded_end)
    partition: Any = SimpleNamespace(
        uploaded_end=end, log_start=0, epoch_starts=[EpochStart(0, 0)], producers=None, transactions=None
    )
    true = takeover._true_part([picture] if is_saved else [], partition)
    runs = [batches[start:stop] for start, stop in pairwise(cuts) if stop > takeover._told_end(true)]
    takeover._apply(partition, true, [state_of(run) for run in runs])

    expected = Known(batches[:end], end)
    # It may know of more: epochs, and markers, that were never uploaded.
    found = {each.producer_id: each for each in partition.producers.snapshot()}
    for each in expected.producers.snapshot():
        # A state has the last five batches of a producer. It may have forgotten older ones, which nobody sends again, for their later ones.
        sent = Known(batches[: max(saved_end, end)] if is_saved else batches[:end], end).producers.snapshot()
        (recent,) = [{batch[2] for batch in other.batches} for other in sent if other.producer_id == each.producer_id]
        told = found[each.producer_id].batches
        assert [batch for batch in told if batch[2] in recent] == [
            batch for batch in each.batches if batch[2] in recent
        ]
        assert all(batch in each.batches for batch in told)
        assert found[each.producer_id].coordinator_epoch >= each.coordinator_epoch
    assert all(each.batches[-1][3] <= end for each in found.values() if each.batches)
    transactions = partition.transactions.snapshot() if partition.transactions is not None else TransactionSnapshot()
    known = expected.transactions.snapshot()
    assert (transactions.open, transactions.aborted) == (known.open, known.aborted)


# -- over a bucket ----------------------------------------------------------------------------------------------------


async def leading_node(path: Path) -> tuple[TierNode, PartitionLog]:
    node = await TierNode(path, is_running_tier=False, keeping=Keeping(is_alone=False)).start()
    return node, (await node.topics.create("t", partitions=2)).partitions[0]


def send(partition: PartitionLog, sequence: int, *, producer: int = 7) -> bool:
    """Whether it was known already."""
    made = build_batch(
        [NewRecord(value=b"%d" % sequence)], now_ms=1, producer_id=producer, producer_epoch=0, base_sequence=sequence
    )
    return partition.append(made, now_ms=1).is_duplicate


async def upload(node: TierNode) -> None:
    await node.logs.wal.drain()
    await node.upload()


async def taken_over(node: TierNode) -> PartitionLog:
    """The first partition as the next leader opens it."""
    entry = node.cluster.topics.get("t")
    new = node.topics._new_partition(entry, 0, node.topics.partition("t", 0).policy)
    new.epoch_starts = [EpochStart(entry.partitions[0].leader_epoch, 0)]
    await node.tier.learn([new])
    await node.tier.adopt([new])
    node.logs.add(new)
    return new


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize("is_merged", [True, False])
async def test_every_batch_behind_the_saved_state_is_known(tmp_path: Path, has_rows: bool, is_merged: bool) -> None:
    """From objects of either version, and from merged ones."""
    node, partition = await leading_node(tmp_path)
    node.tier.uploader._carrier._has_states = node.tier.compactor._has_states = has_rows
    for sequence in range(3):
        assert not send(partition, sequence)
    await upload(node)
    await node.tier.save_shared_state()
    for sequence in range(3, 8):
        assert not send(partition, sequence)
        await upload(node)
    if is_merged:
        assert await node.tier.compactor.run_once(objects_min=2) == 6
    new = await taken_over(node)
    for sequence in range(3, 8):
        assert send(new, sequence)
    with pytest.raises(OutOfOrderSequence):
        send(new, 9)
    assert not send(new, 8)
    await node.stop()


async def test_what_is_opened_together_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition is in the same objects, and in the same broker's state."""
    node, _ = await leading_node(tmp_path)
    partitions = (await node.topics.create("many", partitions=40)).partitions
    for sequence in range(3):
        for partition in partitions:
            send(partition, sequence)
        await upload(node)
        if not sequence:
            await node.tier.save_shared_state()
    asked: list[str] = []
    get, get_range = node.blobs.get, node.blobs.get_range

    async def count(key: str) -> object:
        asked.append(key)
        return await get(key)

    async def count_range(key: str, position: int, length: int) -> object:
        asked.append(key)
        return await get_range(key, position, length)

    monkeypatch.setattr(node.blobs, "get", count)
    monkeypatch.setattr(node.blobs, "get_range", count_range)
    entry = node.cluster.topics.get("many")
    new = [node.topics._new_partition(entry, index, partitions[0].policy) for index in range(40)]
    for each in new:
        each.epoch_starts = [EpochStart(entry.partitions[0].leader_epoch, 0)]
    await node.tier.learn(new)
    await asyncio.gather(*(node.tier.adopt(new[start : start + 8]) for start in range(0, 40, 8)))
    assert len(asked) == 3, asked
    for each in new:
        node.logs.add(each)
        assert send(each, 2)
    assert not node.tier.takeover._wave.objects
    await node.stop()


async def test_an_object_that_is_gone_or_rotten_keeps_nobody_from_leading(tmp_path: Path) -> None:
    node, partition = await leading_node(tmp_path)
    for sequence in range(3):
        send(partition, sequence)
        await upload(node)
    first, second, _ = sorted([info.key async for info in node.blobs.list(keys.DATA)], key=lambda key: key[8:])
    await node.blobs.delete([first])
    await node.blobs.put(second, [b"rotten"])
    new = await taken_over(node)
    assert send(new, 2)
    await node.stop()


async def test_rows_of_many_producers_are_read_from_the_batches(tmp_path: Path) -> None:
    node, partition = await leading_node(tmp_path)
    for producer in range(100, 200):
        send(partition, 0, producer=producer)
    await upload(node)
    new = await taken_over(node)
    assert all(send(new, 0, producer=producer) for producer in range(100, 200))
    assert len(values_of(await read_bucket(node.blobs, "t", 0))) == 100
    await node.stop()


async def test_a_node_that_is_alone_writes_what_it_always_wrote(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    send(partition, 0)
    await upload(node)
    (key,) = [info.key async for info in node.blobs.list(keys.DATA)]
    assert bytes(await node.blobs.get(key))[-16:-14] == (1).to_bytes(2, "big")
    await node.stop()
