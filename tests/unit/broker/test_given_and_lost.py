"""Coordinators of one of several brokers: each partition of an internal topic is read when it is given, and forgotten when it is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.coordinator_bench import OFFSETS, TRANSACTIONS, CoordinatorBench
from tests.support.fake_log import FakeTopics, replayed
from tests.support.logs import turn_of_the_loop

from headrace.broker.internal_topic import InternalTopic, ReplayedBatch
from headrace.broker.transactions.events import TransactionError
from headrace.errors import CoordinatorLoading, NotCoordinator


def shared_bench(topics: FakeTopics | None = None) -> CoordinatorBench:
    """One of several, that leads both internal topics and has read nothing of them."""
    if topics is None:
        topics = FakeTopics(t=2)
        topics.is_shared = True
        for name, count in ((OFFSETS, 4), (TRANSACTIONS, 2)):
            topics.make(name, count).leaders = ["a"] * count
    bench = CoordinatorBench(topics, is_loaded=False)
    for log in (bench.offsets_log, bench.transactions_log):
        log.replay = reading(topics, log.name)  # type: ignore[method-assign]
    return bench


def reading(topics: FakeTopics, name: str):  # type: ignore[no-untyped-def]  # the bound method it stands for is typed
    async def replay(index: int | None = None) -> AsyncIterator[ReplayedBatch]:
        for batch in replayed(topics, name):
            if index in (None, batch.partition):
                yield batch
                await turn_of_the_loop()

    return replay


def name_in(log: InternalTopic, index: int) -> str:
    return next(name for name in map(str, range(100)) if log.partition_of(name) == index)


def give_away(bench: CoordinatorBench, topic: str, index: int) -> None:
    """Another broker leads it, and this one has heard so."""
    bench.topics.get(topic).partitions[index].removed = True
    bench.topics.get(topic).leaders[index] = "b"


async def test_groups_are_known_partition_by_partition() -> None:
    first = shared_bench()
    groups = [name_in(first.offsets_log, index) for index in range(2)]
    for index, group in enumerate(groups):
        await first.groups.load(index)
        await first.commit(group, 5 + index)
    second = shared_bench(first.topics)
    with pytest.raises(CoordinatorLoading):
        second.committed(groups[1])
    await second.groups.load(1)
    assert second.committed(groups[1]) == 6
    with pytest.raises(CoordinatorLoading):
        second.committed(groups[0])
    with pytest.raises(CoordinatorLoading):
        second.groups.names()


async def test_a_lost_partition_takes_its_groups_with_it_and_no_others() -> None:
    bench = shared_bench()
    groups = [name_in(bench.offsets_log, index) for index in range(2)]
    for index, group in enumerate(groups):
        await bench.groups.load(index)
        await bench.commit(group, 5 + index)
    give_away(bench, OFFSETS, 0)
    bench.groups.unload(0)
    for refused in (lambda: bench.committed(groups[0]), lambda: bench.groups.find(groups[0])):
        with pytest.raises(NotCoordinator, match="led by b"):
            refused()
    with pytest.raises(NotCoordinator):
        await bench.commit(groups[0], 9)
    assert bench.committed(groups[1]) == 6
    assert bench.offsets.groups() == [groups[1]]


async def test_a_partition_that_comes_back_is_read_anew() -> None:
    """Whoever had it meanwhile has written to it: what was known before it was lost is not what counts."""
    bench = shared_bench()
    group = name_in(bench.offsets_log, 0)
    await bench.groups.load(0)
    await bench.commit(group, 5)
    bench.groups.unload(0)
    other = shared_bench(bench.topics)
    await other.groups.load(0)
    await other.commit(group, 8)
    await bench.groups.load(0)
    assert bench.committed(group) == 8


async def test_who_waits_for_a_transaction_is_sent_to_the_next_coordinator() -> None:
    bench = shared_bench()
    names = [name_in(bench.transactions_log, index) for index in range(2)]
    for index, name in enumerate(names):
        await bench.transactions.load(index)
        assert (await bench.transactions.init(name, timeout_ms=1000)).error is TransactionError.NONE
    bench.produce.holds = True
    waiting = asyncio.ensure_future(bench.transactions.init(names[0], timeout_ms=1000))
    await bench.settle()
    give_away(bench, TRANSACTIONS, 0)
    bench.transactions.unload(0)
    with pytest.raises(NotCoordinator):
        await waiting
    bench.produce.flush()
    with pytest.raises(NotCoordinator, match="led by b"):
        bench.transactions.find(names[0])
    assert [*bench.transactions.all()] == [names[1]]
    await bench.stop()


async def test_transactions_are_known_partition_by_partition() -> None:
    first = shared_bench()
    names = [name_in(first.transactions_log, index) for index in range(2)]
    for index, name in enumerate(names):
        await first.transactions.load(index)
        await first.transactions.init(name, timeout_ms=1000)
    second = shared_bench(first.topics)
    await second.transactions.load(1)
    found = second.transactions.find(names[1])
    assert found is not None
    assert found.epoch == 0
    with pytest.raises(CoordinatorLoading):
        second.transactions.find(names[0])
    with pytest.raises(CoordinatorLoading):
        second.transactions.all()
    await first.stop()
    await second.stop()


async def test_the_newest_commit_counts_whatever_lies_between() -> None:
    """Only the newest record of a place is looked into, and what a transaction commits or takes back keeps its place in the order."""
    bench = shared_bench()
    await bench.groups.load(0)
    group, other, *_ = (name for name in map(str, range(100)) if bench.offsets_log.partition_of(name) == 0)
    for offset in (1, 2, 3):
        await bench.commit(group, offset)
        await bench.commit(other, offset + 10)
    await bench.offsets.forget(group, [("t", 0)])
    await bench.commit(other, 20)
    again = shared_bench(bench.topics)
    await again.groups.load(0)
    assert (again.committed(group), again.committed(other)) == (None, 20)
    await bench.commit(group, 4)
    await again.groups.load(0)
    assert (again.committed(group), again.committed(other)) == (4, 20)
