"""Small requests share a batch, in order; a full log holds them back and loses none."""

import itertools
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acks, Produce
from headrace.doors.gathering import BATCH_RECORDS_MAX, Gathering
from headrace.doors.turns import TURN_NS, Turns
from headrace.errors import HeadraceError, NotReady, StorageFailed, TooLarge
from headrace.log.partition import Appended, PartitionLog
from headrace.records.record import NewRecord, read_records


@dataclass(eq=False)
class Policy:
    message_bytes_max: int = 1_000_000


@dataclass(eq=False)
class FakePartition:
    """As much of a partition as gathering looks at."""

    topic_name: str = "t"
    topic_id: bytes = b"t"
    index: int = field(default_factory=itertools.count().__next__)
    removed: bool = False
    policy: Policy = field(default_factory=Policy)
    end_offset: int = 0


@dataclass
class FakeProduce:
    """Keeps batches; acknowledges when told."""

    has_room: bool = True
    batches: list[tuple[PartitionLog, int]] = field(default_factory=list)
    pending: list[tuple[Deferred[Appended], Appended]] = field(default_factory=list)
    room_wanted: list[Any] = field(default_factory=list)
    refusal: HeadraceError | None = None
    has_module: bool = False

    def is_transformed(self, partition: PartitionLog) -> bool:
        return self.has_module

    def can_take(self, size: int) -> bool:
        return self.has_room

    def when_room(self, callback: Any) -> None:
        self.room_wanted.append(callback)

    def now_ms(self) -> int:
        return 1_000

    def append_built(self, partition: PartitionLog, batch: bytearray, *, acks: Acks) -> Deferred[Appended]:
        if self.refusal is not None:
            raise self.refusal
        fake = cast(FakePartition, partition)
        base = fake.end_offset
        records = list(read_records(batch))
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
    return Gathering(cast(Produce, produce), Turns())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await turn_of_the_loop()


def add(to: Gathering, where: PartitionLog, count: int = 1, size: int = 10) -> Deferred[int]:
    records = [NewRecord(value=b"x" * (size // count)) for _ in range(count)]
    return to.append(where, records, size=size, reply=lambda base_offset: base_offset)


async def test_requests_of_one_turn_share_a_batch_and_keep_their_offsets() -> None:
    produce, one, two = FakeProduce(), partition(), partition()
    gathered = gathering(produce)
    answers = [add(gathered, one), add(gathered, two), add(gathered, one, 3), add(gathered, one)]
    gathered.flush_all()
    assert produce.batches == [(one, 5), (two, 1)]
    assert not any(answer.is_done for answer in answers)
    produce.acknowledge()
    await turns()
    assert [answer.result() for answer in answers] == [0, 0, 1, 4]


async def test_requests_for_a_topic_with_a_module_share_no_batch() -> None:
    """What a module fails on, it fails as a whole: nobody is refused for another's records."""
    produce, where = FakeProduce(has_module=True), partition()
    gathered = gathering(produce)
    answers = [add(gathered, where), add(gathered, where, 3), add(gathered, where)]
    gathered.flush_all()
    assert produce.batches == [(where, 1), (where, 3), (where, 1)]
    produce.acknowledge()
    await turns()
    assert [answer.result() for answer in answers] == [0, 1, 4]


async def test_a_batch_has_bounds() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    for _ in range(BATCH_RECORDS_MAX + 1):
        add(gathered, where)
    gathered.flush_all()
    assert [count for _, count in produce.batches] == [BATCH_RECORDS_MAX, 1]


async def test_what_the_topic_does_not_take_is_refused_alone() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    small = add(gathered, where)
    with pytest.raises(TooLarge):
        add(gathered, where, size=1_000_000)
    gathered.flush_all()
    produce.acknowledge()
    await turns()
    assert small.result() == 0


async def test_a_full_log_holds_records_back_in_order() -> None:
    produce, where = FakeProduce(has_room=False), partition()
    gathered = gathering(produce)
    first = add(gathered, where)
    gathered.flush_all()
    second = add(gathered, where)
    gathered.flush_all()
    assert produce.batches == []
    assert gathered.is_waiting_for_room
    produce.has_room = True
    (go_on,) = produce.room_wanted
    go_on()
    produce.acknowledge()
    await turns()
    assert (first.result(), second.result()) == (0, 1)


async def test_a_failed_flush_fails_every_request_in_the_batch() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    answers = [add(gathered, where) for _ in range(3)]
    gathered.flush_all()
    produce.acknowledge(StorageFailed("disk"))
    await turns()
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


async def test_what_arrives_while_a_batch_is_under_way_becomes_the_next_one() -> None:
    produce, one, two = FakeProduce(), partition(), partition()
    gathered = gathering(produce)
    first = add(gathered, one)
    await turns()
    behind = [add(gathered, one), add(gathered, one)]
    elsewhere = add(gathered, two)
    await turns()
    assert produce.batches == [(one, 1), (two, 1)]
    produce.acknowledge()
    assert produce.batches == [(one, 1), (two, 1), (one, 2)]
    produce.acknowledge()
    await turns()
    assert [answer.result() for answer in [first, *behind, elsewhere]] == [0, 1, 2, 0]


async def test_a_record_that_must_come_after_sends_what_is_gathered_ahead() -> None:
    produce, one, two = FakeProduce(), partition(), partition()
    gathered = gathering(produce)
    add(gathered, one)
    await turns()
    add(gathered, one)
    add(gathered, two)
    gathered.flush(one)
    assert produce.batches == [(one, 1), (one, 1)]


async def test_a_batch_that_is_refused_does_not_hold_up_what_comes_after() -> None:
    produce, where = FakeProduce(), partition()
    gathered = gathering(produce)
    produce.refusal = StorageFailed("disk")
    refused = add(gathered, where)
    await turns()
    with pytest.raises(StorageFailed):
        refused.result()
    produce.refusal = None
    after = add(gathered, where)
    await turns()
    produce.acknowledge()
    await turns()
    assert after.result() == 0


async def test_what_landed_while_the_log_was_full_goes_when_there_is_room() -> None:
    produce, one, two = FakeProduce(), partition(), partition()
    gathered = gathering(produce)
    add(gathered, one)
    await turns()
    behind = add(gathered, one)
    produce.has_room = False
    held = add(gathered, two)
    await turns()
    assert gathered.is_waiting_for_room
    produce.acknowledge()
    produce.has_room = True
    (go_on,) = produce.room_wanted
    go_on()
    produce.acknowledge()
    await turns()
    assert (behind.result(), held.result()) == (1, 0)


async def test_telling_everybody_takes_turns() -> None:
    produce, where = FakeProduce(), partition()
    now_ns = 0

    def passing_time() -> int:
        nonlocal now_ns
        now_ns += TURN_NS // 2
        return now_ns

    gathered = Gathering(cast(Produce, produce), Turns(passing_time))
    answers = [add(gathered, where) for _ in range(20)]
    gathered.flush_all()
    produce.acknowledge()
    told = []
    while not answers[-1].is_done:
        await turn_of_the_loop()
        told.append(sum(answer.is_done for answer in answers))
    steps = [after - before for before, after in pairwise(told)]
    assert max(steps) <= 3
    assert [answer.result() for answer in answers] == list(range(20))
