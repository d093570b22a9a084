"""Produce: one acknowledgement for all partitions of a request, each durability in its own time."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, batch_of, opened, turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.broker.produce import Acknowledgement, Acks, Produce
from headrace.errors import CorruptBatch, HeadraceError, InvalidName, NotLeader, Overloaded
from headrace.log.policy import Durability, TopicPolicy
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord


def outcomes(ack: Acknowledgement) -> list[HeadraceError | None]:
    found: list[HeadraceError | None] = []
    ack.then(found.append)
    return found


@pytest.mark.requirement("R4.52", "R4.53", "R3.50")
@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_request_of_many_partitions_is_acknowledged_once_when_all_are_kept(tmp_path: Path, acks: Acks) -> None:
    async with opened(tmp_path, partitions=20) as log:
        produce = Produce(log.store, ManualClock(NOW_MS))
        ack = Acknowledgement()
        places = [produce.append(each, batch_of(b"x"), acks=acks, ack=ack) for each in log.partitions]
        assert {each.base_offset for each in places} == {0}
        found = outcomes(ack)
        assert found == []
        await log.store.wal.drain()
        assert found == [None]
        assert {each.high_watermark for each in log.partitions} == {1}
        assert (produce.batches_total, produce.records_total) == (20, 20)


@pytest.mark.requirement("R4.51")
async def test_nobody_waits_with_acks_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        produce = Produce(log.store, ManualClock(NOW_MS))
        ack = Acknowledgement()
        produce.append(log.partitions[0], batch_of(b"x"), acks=Acks.NONE, ack=ack)
        assert outcomes(ack) == [None]
        await log.store.wal.drain()
        assert log.partitions[0].high_watermark == 1


async def test_refused_batch_leaves_the_others_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=2) as log:
        produce = Produce(log.store, ManualClock(NOW_MS))
        ack = Acknowledgement()
        produce.append(log.partitions[0], batch_of(b"x"), acks=Acks.ALL, ack=ack)
        with pytest.raises(CorruptBatch):
            produce.append(log.partitions[1], b"no batch at all" * 10, acks=Acks.ALL, ack=ack)
        found = outcomes(ack)
        await log.store.wal.drain()
        assert found == [None]
        assert (produce.batches_total, log.partitions[1].end_offset) == (1, 0)


@pytest.mark.trap(25)
async def test_duplicate_waits_for_the_durability_of_its_original(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        produce = Produce(log.store, ManualClock(NOW_MS))
        batch = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
        acks = [Acknowledgement(), Acknowledgement()]
        places = [produce.append(partition, batch, acks=Acks.ALL, ack=ack) for ack in acks]
        assert [(each.base_offset, each.is_duplicate) for each in places] == [(0, False), (0, True)]
        found = [outcomes(ack) for ack in acks]
        assert found == [[], []]
        await log.store.wal.drain()
        assert found == [[None], [None]]
        late = Acknowledgement()
        produce.append(partition, batch, acks=Acks.ALL, ack=late)
        assert outcomes(late) == [None]


async def test_first_failure_is_the_outcome_of_the_request(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=2, policy=TopicPolicy(durability=Durability.OBJECT)) as log:
        kept, gone = log.partitions
        produce = Produce(log.store, ManualClock(NOW_MS))
        ack = Acknowledgement()
        for partition in (kept, gone):
            produce.append(partition, batch_of(b"x"), acks=Acks.ALL, ack=ack)
        found = outcomes(ack)
        log.store.remove(gone)
        assert found == []
        await log.store.wal.drain()
        kept.mark_uploaded(1)
        assert [type(each) for each in found] == [NotLeader]


async def test_records_become_one_batch(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_capacity_bytes=8 << 20) as log:
        (partition,) = log.partitions
        produce = Produce(log.store, ManualClock(NOW_MS))
        appended = produce.append_records(partition, [NewRecord(value=b"a"), NewRecord(value=b"b")])
        assert not appended.is_done
        assert (await appended)[:2] == (0, 2)
        at_once = produce.append_records(partition, [NewRecord(value=b"c")], acks=Acks.NONE)
        assert at_once.is_done
        assert at_once.result().base_offset == 2
        await turn_of_the_loop()


async def test_full_log_refuses_records_and_takes_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        produce = Produce(log.store, ManualClock(NOW_MS))
        batch = build_batch(
            [NewRecord(value=b"x")],
            now_ms=NOW_MS,
            producer_id=3,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        await log.append(batch)
        monkeypatch.setattr(log.store, "can_take", lambda size: False)
        assert not produce.can_take(1)
        with pytest.raises(Overloaded):
            produce.append_records(partition, [NewRecord(value=b"x")])
        marker = build_marker(is_commit=True, producer_id=3, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)
        assert (await produce.append_marker(partition, marker)).base_offset == 1
        assert partition.last_stable_offset == 2


async def test_clients_cannot_write_internal_topics_and_their_coordinator_can(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_capacity_bytes=16 << 20) as log:
        (partition,) = log.partitions
        partition.topic_name = "__transaction_state"
        produce = Produce(log.store, ManualClock(NOW_MS))
        tries: list[Callable[[], object]] = [
            lambda: produce.append(partition, batch_of(b"x"), acks=Acks.ALL, ack=Acknowledgement()),
            lambda: produce.append_records(partition, [NewRecord(value=b"x")], acks=Acks.NONE),
            lambda: produce.append_built(partition, batch_of(b"x")),
        ]
        for attempt in tries:
            with pytest.raises(InvalidName):
                attempt()
        assert partition.end_offset == 0
        await produce.append_internal(partition, [NewRecord(key=b"k", value=b"x")])
        assert partition.end_offset == 1
