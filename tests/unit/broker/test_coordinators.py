"""The drivers of groups, offsets and transactions: order, durability, and what happens when the log says no."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from tests.support.consumer_group_script import classic_join
from tests.support.coordinator_bench import OFFSETS, TRANSACTIONS, CoordinatorBench, Store
from tests.support.fake_log import FakeTopics, replayed

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.groups.embedded import write_assignment
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer
from headrace.broker.offsets import CommittedOffset
from headrace.broker.transactions import markers as markers_module
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError, TransactionState
from headrace.errors import (
    HeadraceError,
    NotLeader,
    Overloaded,
    ProducerFenced,
    StaleEpoch,
    StorageFailed,
    TransactionNotOpen,
)
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

# -- the internal topic


async def test_epoch_of_a_coordinator_is_that_of_its_partition() -> None:
    bench = CoordinatorBench()
    assert bench.offsets_log.leader_epoch_of("g") == 0
    await bench.commit()
    assert bench.offsets_log.leader_epoch_of("g") == 3


async def test_topic_is_made_on_first_use_and_order_is_kept_meanwhile() -> None:
    bench = CoordinatorBench()
    waiting = [bench.commit(offset=number) for number in range(3)]
    await asyncio.gather(*waiting)
    assert bench.topics.created == [OFFSETS]
    assert bench.committed() == 2


async def test_records_of_one_turn_share_a_batch() -> None:
    bench = CoordinatorBench()
    await bench.commit()
    await asyncio.gather(*(bench.commit(offset=number) for number in range(100)))
    assert sum(len(partition.batches) for partition in bench.topics.get(OFFSETS).partitions) == 2
    assert bench.committed() == 99


async def test_callers_hear_why_the_topic_could_not_be_made() -> None:
    bench = CoordinatorBench()
    bench.topics.failure = Overloaded("not now")
    with pytest.raises(Exception, match=OFFSETS):
        await bench.commit()
    bench.topics.failure = None
    await bench.commit()
    assert bench.committed() == 5


# -- offsets


async def test_commit_is_visible_only_once_it_is_durable() -> None:
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    bench.produce.holds = True
    pending = asyncio.ensure_future(bench.commit(offset=2))
    await bench.settle()
    assert bench.committed() == 1
    bench.produce.flush()
    await pending
    assert bench.committed() == 2


async def test_failed_commit_changes_nothing_and_is_told() -> None:
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    bench.produce.holds = True
    pending = asyncio.ensure_future(bench.commit(offset=2))
    await bench.settle()
    bench.produce.flush(StorageFailed("the disk is gone"))
    with pytest.raises(StorageFailed):
        await pending
    assert bench.committed() == 1


async def test_volatile_and_durable_commits_replace_each_other_while_running() -> None:
    """After a restart the durable one is all there is (C5)."""
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    await bench.commit(offset=2, is_volatile=True)
    assert bench.committed() == 2
    again = CoordinatorBench(bench.topics)
    for batch in replayed(bench.topics, OFFSETS):
        again.offsets.replay(batch)
    assert again.committed() == 1
    await bench.commit(offset=3)
    assert bench.committed() == 3


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_of_a_transaction_follow_its_outcome_also_when_read_back(is_commit: bool) -> None:
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    place = {("t", 0): CommittedOffset(offset=9)}
    producer = (await bench.transactions.init("x", timeout_ms=1000)).producer
    assert await bench.transactions.add_offsets("x", producer, "g") is TransactionError.NONE
    await bench.offsets.commit_in_transaction(
        "g", place, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
    assert bench.committed() == 1
    assert bench.offsets.undecided("g") == {("t", 0)}
    half = CoordinatorBench(bench.topics)
    for batch in replayed(bench.topics, OFFSETS):
        half.offsets.replay(batch)
    assert half.offsets.undecided("g") == {("t", 0)}
    assert await bench.transactions.end("x", producer, is_commit=is_commit) is TransactionError.NONE
    await bench.settle()
    again = CoordinatorBench(bench.topics)
    for batch in replayed(bench.topics, OFFSETS):
        again.offsets.replay(batch)
    for each in (bench, again):
        assert each.committed() == (9 if is_commit else 1)
        assert each.offsets.undecided("g") == set()


async def test_commit_after_a_transactional_one_is_not_undone_by_its_marker() -> None:
    bench = CoordinatorBench()
    place = {("t", 0): CommittedOffset(offset=9)}
    await bench.offsets.commit_in_transaction("g", place, producer_id=7, producer_epoch=0)
    await bench.commit(offset=20)
    bench.offsets.end_transaction(bench.offsets_log.partition_of("g"), 7, is_commit=True)
    assert bench.committed() == 20


async def test_offsets_expire_some_time_after_the_group_was_last_used() -> None:
    bench = CoordinatorBench()
    error = await bench.groups.commit("g", {("t", 0): CommittedOffset(offset=5)}, Committer())
    assert error is GroupError.NONE
    bench.clock.advance(59_000)
    bench.groups.expire()
    await bench.settle()
    assert bench.committed() == 5
    bench.clock.advance(2_000)
    bench.groups.expire()
    await bench.settle()
    assert bench.committed() is None
    bench.clock.advance(600_000)
    bench.groups.expire()
    await bench.settle()
    assert bench.groups.find("g") is None


# -- groups


def join_event(member_id: str = "") -> classic.Join:
    return classic.Join(
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(classic.Protocol(name="range", metadata=b""),),
        spare_member_id="m",
    )


async def stable(bench: CoordinatorBench) -> classic.JoinReply:
    joined = await bench.groups.join("g", join_event())
    synced = classic.Sync(member_id="m", generation=joined.generation, assignments={"m": b"share"})
    assert (await bench.groups.sync("g", synced)).assignment == b"share"
    return joined


async def test_classic_group_is_restored_from_its_record() -> None:
    bench = CoordinatorBench()
    joined = await stable(bench)
    again = CoordinatorBench(bench.topics)
    again.offsets_log.replay = replaying(bench.topics)  # type: ignore[method-assign]
    await again.groups.load()
    beat = classic.Heartbeat(member_id="m", generation=joined.generation)
    assert await again.groups.heartbeat("g", beat) is GroupError.NONE
    await again.groups.stop()
    await bench.groups.stop()


def replaying(topics: FakeTopics) -> Any:  # Any: stands in for a method
    async def replay(index: int | None = None) -> Any:
        for batch in replayed(topics, OFFSETS):
            yield batch

    return replay


async def test_assignment_is_withheld_when_it_cannot_be_stored() -> None:
    bench = CoordinatorBench()
    joined = await bench.groups.join("g", join_event())
    bench.topics.make(OFFSETS, 4)
    bench.produce.fail_with = Overloaded("full")
    event = classic.Sync(member_id="m", generation=joined.generation, assignments={"m": b"share"})
    reply = await bench.groups.sync("g", event)
    assert reply.error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert reply.assignment == b""
    await bench.groups.stop()


def attend_event(epoch: int = 0) -> consumer.Heartbeat:
    return consumer.Heartbeat(
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=1000 if epoch == 0 else -1,
        topic_names=frozenset({"t"}) if epoch == 0 else None,
        owned=frozenset() if epoch == 0 else None,
    )


async def test_next_generation_answer_waits_for_durability() -> None:
    bench = CoordinatorBench()
    bench.topics.make(OFFSETS, 4)
    bench.produce.holds = True
    pending = bench.groups.consumer_heartbeat("g", attend_event())
    await bench.settle()
    assert not pending.is_done
    bench.produce.flush()
    assert len((await pending).assignment or ()) == 2
    bench.produce.fail_with = Overloaded("full")
    left = bench.groups.consumer_heartbeat("g", consumer.Heartbeat(member_id="m", member_epoch=-1))
    assert (await left).error is GroupError.COORDINATOR_NOT_AVAILABLE
    await bench.groups.stop()


async def test_empty_group_changes_its_kind_and_the_old_record_goes() -> None:
    bench = CoordinatorBench()
    assert (await bench.groups.consumer_heartbeat("g", attend_event())).error is GroupError.NONE
    refused = await bench.groups.join("g", join_event())
    assert refused.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    await bench.groups.consumer_heartbeat("g", consumer.Heartbeat(member_id="m", member_epoch=-1))
    await stable(bench)
    assert await kinds_after_restart(bench) == ["classic"]
    await bench.groups.stop()


async def test_refused_member_does_not_change_the_kind_of_a_group() -> None:
    bench = CoordinatorBench()
    await stable(bench)
    await bench.groups.leave("g", classic.Leave(departures=(classic.Departure(member_id="m"),)))
    event = msgspec.structs.replace(attend_event(), server_assignor="best")
    assert (await bench.groups.consumer_heartbeat("g", event)).error is GroupError.UNSUPPORTED_ASSIGNOR
    assert [each.kind for each in bench.groups.listings()] == ["classic"]
    await bench.groups.stop()


async def test_group_with_members_changes_its_kind_and_back() -> None:
    """A classic member stays while one of the new protocol comes and goes; what was committed stays."""
    bench = CoordinatorBench()
    joined = await bench.groups.join("g", consumer_join_event())
    assignments = {joined.member_id: write_assignment([("t", 0), ("t", 1)], 1)}
    sync = classic.Sync(member_id=joined.member_id, generation=joined.generation, assignments=assignments)
    await bench.groups.sync("g", sync)
    member = Committer(member_id=joined.member_id, generation=joined.generation)
    offsets = {("t", 0): CommittedOffset(offset=7)}
    assert await bench.groups.commit("g", offsets, member) is GroupError.NONE

    arrived = await bench.groups.consumer_heartbeat("g", attend_event())
    assert arrived.error is GroupError.NONE
    assert arrived.assignment == frozenset()
    assert await kinds_after_restart(bench) == ["consumer"]
    assert await bench.groups.commit("g", offsets, member) is GroupError.NONE
    beat = classic.Heartbeat(member_id=joined.member_id, generation=joined.generation)
    assert await bench.groups.heartbeat("g", beat) is GroupError.REBALANCE_IN_PROGRESS
    again = await bench.groups.join("g", consumer_join_event(joined.member_id))
    assert again.error is GroupError.NONE
    assert again.leader_id == ""

    left = await bench.groups.consumer_heartbeat("g", consumer.Heartbeat(member_id="m", member_epoch=-1))
    assert left.error is GroupError.NONE
    assert await kinds_after_restart(bench) == ["classic"]
    (listing,) = bench.groups.listings()
    assert (listing.kind, listing.state) == ("classic", "PreparingRebalance")
    beat = classic.Heartbeat(member_id=joined.member_id, generation=again.generation)
    assert await bench.groups.heartbeat("g", beat) is GroupError.REBALANCE_IN_PROGRESS
    assert bench.committed() == 7
    await bench.groups.stop()


async def kinds_after_restart(bench: CoordinatorBench) -> list[str]:
    again = CoordinatorBench(bench.topics)
    again.offsets_log.replay = replaying(bench.topics)  # type: ignore[method-assign]
    await again.groups.load()
    kinds = [each.kind for each in again.groups.listings()]
    await again.groups.stop()
    return kinds


def consumer_join_event(member_id: str = "") -> classic.Join:
    return msgspec.structs.replace(classic_join(member_id, topics=["t"]), spare_member_id="old")


# -- transactions


async def begun(bench: CoordinatorBench, *partitions: int) -> Identity:
    producer = (await bench.transactions.init("x", timeout_ms=60_000)).producer
    added = frozenset(TopicPartition("t", index) for index in partitions)
    assert await bench.transactions.add_partitions("x", producer, added) is TransactionError.NONE
    return producer


async def test_markers_go_to_every_partition_that_still_exists() -> None:
    bench = CoordinatorBench()
    producer = await begun(bench, 0, 1, 7)
    await bench.transactions.end("x", producer, is_commit=True)
    await bench.settle()
    assert [len(partition.batches) for partition in bench.topics.get("t").partitions] == [1, 1]
    found = bench.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.COMPLETE_COMMIT
    await bench.transactions.stop()


@pytest.mark.parametrize("refusal", [Overloaded("full"), NotLeader("led elsewhere")])
async def test_marker_that_finds_no_room_or_no_leader_is_written_later(
    monkeypatch: pytest.MonkeyPatch, refusal: HeadraceError
) -> None:
    monkeypatch.setattr(markers_module, "RETRY_S", 0.0)
    bench = CoordinatorBench()
    producer = await begun(bench, 0)
    bench.produce.holds = True
    ending = bench.transactions.end("x", producer, is_commit=False)
    await bench.settle()
    bench.produce.fail_with = refusal
    bench.produce.flush()
    assert await ending is TransactionError.NONE
    bench.produce.fail_with = None
    bench.produce.holds = False
    await bench.settle()
    assert len(bench.topics.partition("t", 0).batches) == 1
    await bench.transactions.stop()


async def test_a_former_coordinator_neither_ends_a_transaction_nor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_module, "RETRY_S", 0.0)
    bench = CoordinatorBench()
    producer = await begun(bench, 0)
    bench.produce.holds = True
    ending = bench.transactions.end("x", producer, is_commit=False)
    await bench.settle()
    bench.produce.fail_with = StaleEpoch("a newer coordinator has written here")
    bench.produce.flush()
    assert await ending is TransactionError.NONE
    bench.produce.fail_with = None
    bench.produce.holds = False
    await bench.settle()
    found = bench.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.PREPARE_ABORT
    assert bench.topics.partition("t", 0).batches == []
    await bench.transactions.stop()


async def test_outcome_that_cannot_be_persisted_is_no_outcome() -> None:
    bench = CoordinatorBench()
    producer = await begun(bench, 0)
    bench.produce.fail_with = Overloaded("full")
    error = await bench.transactions.end("x", producer, is_commit=True)
    assert error is TransactionError.COORDINATOR_NOT_AVAILABLE
    assert bench.topics.partition("t", 0).batches == []
    bench.produce.fail_with = None
    assert await bench.transactions.end("x", producer, is_commit=True) is TransactionError.NONE
    await bench.transactions.stop()


async def test_decided_transaction_is_completed_by_the_next_life() -> None:
    bench = CoordinatorBench()
    producer = await begun(bench, 0)
    bench.produce.holds = True
    ending = bench.transactions.end("x", producer, is_commit=True)
    await bench.settle()
    # Dies here: the outcome is in the log, its marker is not.
    again = CoordinatorBench(bench.topics)
    again.transactions._log.replay = _replay_transactions(bench.topics)  # type: ignore[method-assign]
    await again.transactions.load()
    await again.settle()
    assert len(bench.topics.partition("t", 0).batches) == 1
    found = again.transactions.find("x")
    assert found is not None
    assert found.state is TransactionState.COMPLETE_COMMIT
    assert not ending.is_done
    await again.transactions.stop()
    await bench.transactions.stop()


def _replay_transactions(topics: FakeTopics) -> Any:  # Any: stands in for a method
    async def replay(index: int | None = None) -> Any:
        for batch in replayed(topics, TRANSACTIONS):
            yield batch

    return replay


async def test_only_batches_of_open_transactions_are_taken() -> None:
    bench = CoordinatorBench()
    producer = await begun(bench, 0)

    def check(index: int, epoch: int) -> None:
        batch = build_batch(
            [NewRecord(value=b"x")],
            now_ms=0,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        bench.transactions.check_append(cast(Any, bench.topics.partition("t", index)), read_header(batch))

    check(0, producer.epoch)
    with pytest.raises(TransactionNotOpen):
        check(1, producer.epoch)
    with pytest.raises(ProducerFenced):
        check(0, producer.epoch - 1)
    await bench.transactions.end("x", producer, is_commit=False)
    with pytest.raises(TransactionNotOpen):
        check(0, producer.epoch)
    await bench.transactions.stop()


async def test_offsets_may_be_committed_only_in_the_transaction_they_were_added_to() -> None:
    bench = CoordinatorBench()

    def check(producer: Identity, group: str = "g") -> TransactionError:
        return bench.transactions.check_offsets("x", producer, group)

    assert check(Identity(producer_id=7, epoch=0)) is TransactionError.INVALID_PRODUCER_ID_MAPPING
    producer = (await bench.transactions.init("x", timeout_ms=1000)).producer
    assert check(producer) is TransactionError.INVALID_TXN_STATE
    await bench.transactions.add_partitions("x", producer, frozenset({TopicPartition("t", 0)}))
    assert check(producer) is TransactionError.INVALID_TXN_STATE
    await bench.transactions.add_offsets("x", producer, "g")
    assert check(producer) is TransactionError.NONE
    elsewhere = next(
        f"g{n}" for n in range(99) if bench.offsets_log.partition_of(f"g{n}") != bench.offsets_log.partition_of("g")
    )
    assert check(producer, elsewhere) is TransactionError.INVALID_TXN_STATE
    bench.produce.holds = True
    ending = bench.transactions.end("x", producer, is_commit=True)
    await bench.settle()
    bench.produce.flush()
    assert check(producer) is TransactionError.CONCURRENT_TRANSACTIONS
    bench.produce.holds = False
    bench.produce.flush()
    assert await ending is TransactionError.NONE
    await bench.settle()
    assert check(producer) is TransactionError.INVALID_TXN_STATE
    await bench.transactions.init("x", timeout_ms=1000)
    assert check(producer) is TransactionError.PRODUCER_FENCED
    await bench.stop()


@pytest.mark.parametrize("is_open", [True, False])
async def test_offsets_that_wait_for_no_transaction_are_dropped_at_the_next_start(is_open: bool) -> None:
    """Earlier versions took them. They stayed unstable for good, or were committed by the producer's next transaction."""
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    producer = (await bench.transactions.init("x", timeout_ms=60_000)).producer
    if is_open:
        await bench.transactions.add_offsets("x", producer, "g")
    await bench.offsets.commit_in_transaction(
        "g",
        {("t", 0): CommittedOffset(offset=9)},
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    for _ in range(2):
        bench = bench.next_life(Store())
        await bench.groups.load()
        await bench.transactions.load()
        assert bench.offsets.undecided("g") == ({("t", 0)} if is_open else set())
        assert bench.committed() == 1
    if not is_open:
        await bench.transactions.add_offsets("x", producer, "g")
    assert await bench.transactions.end("x", producer, is_commit=True) is TransactionError.NONE
    await bench.settle()
    assert bench.committed() == (9 if is_open else 1)
    await bench.stop()


async def test_a_marker_that_cannot_be_written_yet_leaves_transactions_unloaded() -> None:
    """Written later, it could end the next transaction of the same producer."""
    bench = CoordinatorBench()
    await bench.commit(offset=1)
    await bench.offsets.commit_in_transaction(
        "g", {("t", 0): CommittedOffset(offset=9)}, producer_id=5, producer_epoch=0
    )
    again = bench.next_life(Store())
    await again.groups.load()
    again.produce.fail_with = Overloaded("not now")
    with pytest.raises(Overloaded):
        await again.transactions.load()
    assert not again.transactions.is_loaded
    again.produce.fail_with = None
    await again.transactions.load()
    assert again.offsets.undecided("g") == set()
    await again.stop()


async def test_a_deleted_group_takes_the_offsets_of_open_transactions_along() -> None:
    """As in Kafka: neither the outcome nor a restart brings them back."""
    bench = CoordinatorBench()
    producer = (await bench.transactions.init("x", timeout_ms=60_000)).producer
    await bench.transactions.add_offsets("x", producer, "g")
    offsets = {("t", 0): CommittedOffset(offset=9)}
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    await bench.groups.commit_in_transaction("g", offsets, Committer(), **identity)
    assert await bench.groups.delete("g") is GroupError.NONE
    assert bench.offsets.undecided("g") == set()
    assert await bench.transactions.end("x", producer, is_commit=True) is TransactionError.NONE
    await bench.settle()
    again = bench.next_life(Store())
    await again.groups.load()
    for each in (bench, again):
        assert each.committed() is None
        await each.stop()
