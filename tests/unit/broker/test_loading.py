"""Coordinators that have not read back their state yet: they answer nobody, lose nothing, and try again."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.support.consumer_group_script import classic_join
from tests.support.coordinator_bench import OFFSETS, CoordinatorBench, Store
from tests.support.fake_log import replayed
from tests.support.logs import turn_of_the_loop

from headrace.broker import coordinators as coordinators_module
from headrace.broker.coordinators import Coordinators
from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.groups.service import Committer
from headrace.broker.offset_records import OffsetRecord, decode
from headrace.broker.offsets import CommittedOffset
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError, TransactionState
from headrace.errors import CoordinatorLoading, Corrupted, HeadraceError, StoreUnavailable
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

Bench = CoordinatorBench
OUTAGE = StoreUnavailable("the store is down")
PRODUCER = Identity(producer_id=100, epoch=0)
OFFSET = {("t", 0): CommittedOffset(offset=9)}

REQUESTS: dict[str, Callable[[Bench], Any]] = {
    "join": lambda b: b.groups.join("g", classic_join("", topics=["t"])),
    "sync": lambda b: b.groups.sync("g", classic.Sync(member_id="m", generation=1)),
    "heartbeat": lambda b: b.groups.heartbeat("g", classic.Heartbeat(member_id="m", generation=1)),
    "leave": lambda b: b.groups.leave("g", classic.Leave(departures=(classic.Departure(member_id="m"),))),
    "consumer heartbeat": lambda b: b.groups.consumer_heartbeat("g", consumer.Heartbeat(member_id="m", member_epoch=0)),
    "commit": lambda b: b.groups.commit("g", OFFSET, Committer()),
    "commit in a transaction": lambda b: b.groups.commit_in_transaction(
        "g", OFFSET, Committer(), producer_id=100, producer_epoch=0
    ),
    "check reader": lambda b: b.groups.check_reader("g", "m", 1),
    "find group": lambda b: b.groups.find("g"),
    "list groups": lambda b: b.groups.listings(),
    "delete group": lambda b: b.groups.delete("g"),
    "delete offsets": lambda b: b.groups.delete_offsets("g", [("t", 0)]),
    "commit of another door": lambda b: b.offsets.commit("g", OFFSET),
    "volatile commit": lambda b: b.offsets.commit("g", OFFSET, is_volatile=True),
    "offset": lambda b: b.offsets.committed("g", "t", 0),
    "offsets": lambda b: b.offsets.all_of("g"),
    "undecided offsets": lambda b: b.offsets.undecided("g"),
    "add partitions": lambda b: b.transactions.add_partitions("x", PRODUCER, frozenset({TopicPartition("t", 0)})),
    "end": lambda b: b.transactions.end("x", PRODUCER, is_commit=True),
    "check offsets": lambda b: b.transactions.check_offsets("x", PRODUCER, "g"),
    "find transaction": lambda b: b.transactions.find("x"),
    "list transactions": lambda b: b.transactions.all(),
    "transactional batch": lambda b: b.transactions.check_append(
        cast(Any, b.topics.partition("t", 0)), read_header(_batch())
    ),
}


def _batch() -> bytearray:
    return build_batch(
        [NewRecord(value=b"x")], now_ms=0, producer_id=100, producer_epoch=0, base_sequence=0, is_transactional=True
    )


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
async def test_nothing_is_answered_before_everything_is_known(request_: Callable[[Bench], Any]) -> None:
    bench = Bench(is_loaded=False)
    with pytest.raises(CoordinatorLoading):
        request_(bench)
    assert bench.topics.created == []


async def test_a_producer_is_not_begun_before_everything_is_known() -> None:
    bench = Bench(is_loaded=False)
    with pytest.raises(CoordinatorLoading):
        await bench.transactions.init("x", timeout_ms=1000)
    with pytest.raises(CoordinatorLoading):
        await bench.transactions.add_offsets("x", PRODUCER, "g")
    assert bench.topics.created == []


async def test_half_of_what_was_read_is_neither_served_nor_kept() -> None:
    bench = Bench()
    first, second = (next(g for g in "abcdefgh" if bench.offsets_log.partition_of(g) == index) for index in (0, 1))
    await bench.commit(first, 1)
    await bench.commit(second, 2)
    store = Store(OUTAGE)
    again = bench.next_life(store)
    with pytest.raises(StoreUnavailable):
        await again.groups.load()
    assert again.offsets.groups() == []
    with pytest.raises(CoordinatorLoading):
        again.committed(first)
    # Meanwhile the offset was deleted and the log compacted: what the first attempt has seen is no longer there.
    bench.topics.partition(OFFSETS, 0).batches.clear()
    store.failure = None
    await again.groups.load()
    assert again.committed(first) is None
    assert again.committed(second) == 2
    await again.stop()


@pytest.mark.parametrize("is_created_again", [True, False])
@pytest.mark.parametrize("has_crashed", [True, False])
async def test_offsets_of_a_topic_deleted_meanwhile_are_forgotten(is_created_again: bool, has_crashed: bool) -> None:
    """Also when the node dies before it could write that down."""
    bench = Bench()
    await bench.commit("g", 7)
    store = Store(OUTAGE)
    again = bench.next_life(store)
    with pytest.raises(StoreUnavailable):
        await again.groups.load()
    again.topics.delete("t")
    if is_created_again:
        again.topics.make("t", 2)
    if has_crashed:
        again = bench.next_life(store)
    store.failure = None
    await again.groups.load()
    assert again.committed() is None
    await again.settle()
    if is_created_again:
        await again.commit("g", 1)
    last = again.next_life(Store())
    await last.groups.load()
    assert last.committed() == (1 if is_created_again else None)
    await again.stop()
    await last.stop()


async def test_what_was_forgotten_at_a_load_is_gone_from_the_log() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    bench.topics.on_removed.clear()  # As if it had died right after the topic was deleted.
    bench.topics.delete("t")
    again = bench.next_life(Store())
    await again.groups.load()
    await again.settle()
    found = [decode(record) for batch in replayed(again.topics, OFFSETS) for record in batch.records]
    assert [each.committed is None for each in found if isinstance(each, OffsetRecord)] == [False, True]
    await again.stop()


async def test_a_transaction_that_ends_after_its_topic_was_made_anew_commits_no_old_offset() -> None:
    bench = Bench()
    await bench.offsets.commit_in_transaction("g", OFFSET, producer_id=100, producer_epoch=0)
    bench.topics.delete("t")
    bench.topics.make("t", 2)
    bench.offsets.end_transaction(bench.offsets_log.partition_of("g"), 100, is_commit=True)
    assert bench.committed() is None
    await bench.stop()


async def test_the_time_of_a_transaction_runs_only_once_it_is_loaded() -> None:
    bench = Bench()
    started = await bench.transactions.init("x", timeout_ms=1000)
    opened = await bench.transactions.add_partitions("x", started.producer, frozenset({TopicPartition("t", 0)}))
    assert opened is TransactionError.NONE
    await bench.stop()
    store = Store(OUTAGE)
    again = bench.next_life(store)
    again.clock.time_ms = bench.clock.time_ms + 5000
    await again.groups.load()
    with pytest.raises(StoreUnavailable):
        await again.transactions.load()
    await again.settle()
    assert again.topics.partition("t", 0).batches == []
    store.failure = None
    await again.transactions.load()
    # Its time was over while nobody knew of it.
    await again.settle()
    found = again.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.COMPLETE_ABORT
    await again.stop()


def coordinators(bench: Bench, faults: list[HeadraceError] | None = None) -> Coordinators:
    told = [] if faults is None else faults
    return Coordinators(
        offsets=bench.offsets,
        groups=bench.groups,
        transactions=bench.transactions,
        participation=bench.participation,
        markers=bench.markers,
        forwarding=bench.forwarding,
        on_fault=told.append,
    )


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators_module, "HEAD_START_S", 0.001)
    monkeypatch.setattr(coordinators_module, "RETRY_S_MIN", 0.001)


async def test_a_start_waits_for_a_store_that_answers() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    again = bench.next_life(Store())
    both = coordinators(again)
    assert list(both.unloaded) == ["groups", "transactions"]
    await both.start()
    assert list(both.unloaded) == []
    assert again.committed() == 7
    await both.stop()


@pytest.mark.usefixtures("hurry")
async def test_a_start_does_not_wait_for_a_store_that_is_down_and_loads_when_it_is_back() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    await bench.transactions.init("x", timeout_ms=1000)
    store = Store(OUTAGE)
    again = bench.next_life(store)
    both = coordinators(again)
    await both.start()
    assert both.unloaded == ("groups", "transactions")
    reads = store.reads
    while store.reads < reads + 3:
        await turn_of_the_loop()
    assert len(both.unloaded) == 2
    store.failure = None
    while not again.transactions.is_loaded:
        await turn_of_the_loop()
    assert again.committed() == 7
    assert again.transactions.find("x") is not None
    await both.stop()


async def test_what_will_not_pass_ends_the_start() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    both = coordinators(bench.next_life(Store(Corrupted("rot"))))
    with pytest.raises(Corrupted):
        await both.start()
    await both.stop()


@pytest.mark.usefixtures("hurry")
async def test_what_will_not_pass_later_is_the_nodes_to_deal_with() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    store = Store(OUTAGE)
    faults: list[HeadraceError] = []
    both = coordinators(bench.next_life(store), faults)
    await both.start()
    store.failure = Corrupted("rot")
    while not faults:
        await turn_of_the_loop()
    assert faults == [store.failure]
    await both.stop()


@pytest.mark.usefixtures("hurry")
async def test_a_stop_while_loading_is_clean() -> None:
    bench = Bench()
    await bench.commit("g", 7)
    faults: list[HeadraceError] = []
    both = coordinators(bench.next_life(Store(OUTAGE)), faults)
    await both.start()
    await both.stop()
    await turn_of_the_loop()
    assert faults == []
