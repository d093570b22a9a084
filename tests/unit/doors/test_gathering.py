"""Small requests share a batch, in order; a full log holds them back and loses none."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acks, Produce
from headrace.doors.gathering import BATCH_RECORDS_MAX, Gathering
from headrace.errors import HeadraceError, NotReady, StorageFailed, TooLarge
from headrace.log.partition import Appended, PartitionLog
from headrace.records.record import NewRecord


@dataclass(eq=False)
class Policy:
    message_bytes_max: int = 1_000_000


@dataclass(eq=False)
class FakePartition:
    """As much of a partition as gathering looks at."""

    topic_name: str = "t"
    policy: Policy = field(default_factory=Policy)
    end_offset: int = 0


@dataclass
class FakeProduce:
    """Keeps batches; acknowledges when told."""

    has_room: bool = True
    batches: list[tuple[PartitionLog, int]] = field(default_factory=list)
    pending: list[tuple[Deferred[Appended], Appended]] = field(default_factory=list)
    room_wanted: list[Any] = field(default_factory=list)

    def can_take(self, size: int) -> bool:
        return self.has_room

    def when_room(self, callback: Any) -> None:
        self.room_wanted.append(callback)

    def append_records(self, partition: PartitionLog, records: list[NewRecord], *, acks: Acks) -> Deferred[Appended]:
        fake = cast(FakePartition, partition)
        base = fake.end_offset
        fake.end_offset += len(records)
        self.batches.append((partition, len(records)))
        deferred: Deferred[Appended] = Deferred()
        self.pending.append((deferred, Appended(base, fake.end_offset, -1, False)))
        return deferred

    def acknowledge(self, error: HeadraceError | None = None) -> None:
        pending, self.pending = self.pending, []
        for deferred, appended in pending:
            if error is None:
                deferred.resolve(appended)
            else:
                deferred.reject(error)


def partition() -> PartitionLog:
    return cast(PartitionLog, FakePartition())


def gathering(produce: FakeProduce) -> Gathering:
    return Gathering(cast(Produce, produce))


def add(to: Gathering, where: PartitionLog, count: int = 1, size: int = 10) -> Deferred[int]:
    records = [NewRecord(value=b"x" * (size // count)) for _ in range(count)]
    return to.append(where, records, size=size, reply=lambda base_offset: base_offset)


async def test_requests_of_one_turn_share_a_batch_and_keep_their_offsets() -> None:
    produce, one, two = FakeProduce(), partition(), partition()
    gathered = gathering(produce)
    answers = [add(gathered, one), add(gathered, two), add(gathered, one, 3), add(gathered, one)]
    gathered.flush()
    assert produce.batches == [(one, 5), (two, 1)]
    assert not any(answer.is_done for answer in answers)
    produce.acknowledge()
    assert [answer.result() for answer in answers] == [0, 0, 1, 4]


async def test_a_batch_has_bounds() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    for _ in range(BATCH_RECORDS_MAX + 1):
        add(gathered, where)
    gathered.flush()
    assert [count for _, count in produce.batches] == [BATCH_RECORDS_MAX, 1]


async def test_what_the_topic_does_not_take_is_refused_alone() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    small = add(gathered, where)
    with pytest.raises(TooLarge):
        add(gathered, where, size=1_000_000)
    gathered.flush()
    produce.acknowledge()
    assert small.result() == 0


async def test_a_full_log_holds_records_back_in_order() -> None:
    produce, where = FakeProduce(has_room=False), partition()
    gathered = gathering(produce)
    first = add(gathered, where)
    gathered.flush()
    second = add(gathered, where)
    gathered.flush()
    assert produce.batches == []
    assert gathered.held_bytes > 0
    assert gathered.is_waiting_for_room
    produce.has_room = True
    (go_on,) = produce.room_wanted
    go_on()
    produce.acknowledge()
    assert (first.result(), second.result()) == (0, 1)
    assert gathered.held_bytes == 0


async def test_a_failed_flush_fails_every_request_in_the_batch() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    answers = [add(gathered, where) for _ in range(3)]
    gathered.flush()
    produce.acknowledge(StorageFailed("disk"))
    for answer in answers:
        with pytest.raises(StorageFailed):
            answer.result()


async def test_after_stop_nothing_is_taken_and_nobody_is_left_waiting() -> None:
    produce, where = FakeProduce(has_room=False), partition()
    gathered = gathering(produce)
    held = add(gathered, where)
    gathered.stop()
    with pytest.raises(NotReady):
        held.result()
    with pytest.raises(NotReady):
        add(gathered, where)
