"""The word of a coordinator that is another broker: asked once, for one producer epoch, one partition and one leadership of it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.peers import calls
from headrace.broker.peers.calls import PartTaken, TakePart
from headrace.broker.transactions import participation as module
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError
from headrace.broker.transactions.participation import Participation
from headrace.errors import NotCoordinator, NotLeader, ProducerFenced, TransactionNotOpen, Unavailable

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)
PRODUCER = Identity(producer_id=7, epoch=2)


class Peers:
    """The coordinator: answers what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, TakePart]] = []
        self.is_asked = asyncio.Event()
        self.answer: PartTaken | Exception = PartTaken("NONE", [])
        self.is_let_go = asyncio.Event()
        self.is_let_go.set()

    async def call(self, broker: str, kind: str, body: bytes) -> bytes:
        self.asked.append((broker, calls.call_of(kind, body)))
        self.is_asked.set()
        await self.is_let_go.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return calls.encode(self.answer)


class Coordination:
    """What `Transactions` says where another broker has the transaction."""

    def is_here(self, name: str) -> bool:
        return False

    def is_led_here(self, name: str) -> bool:
        return False

    def knows(self, producer_id: int) -> bool:
        return False

    def epoch_of(self, name: str) -> int:
        return 11

    def known_leader_of(self, name: str) -> str:
        return "b"

    def offsets_of(self, group: str) -> TopicPartition:
        return SECOND


class Bench:
    def __init__(self) -> None:
        self.partitions = [
            SimpleNamespace(
                topic_id=b"t" * 16,
                topic_name="t",
                index=index,
                leader_epoch=0,
                removed=False,
                producers=None,
                transactions=None,
            )
            for index in range(2)
        ]
        topics = SimpleNamespace(
            has_partition=lambda name, index: name == "t" and 0 <= index < 2,
            partition=lambda name, index: self.partitions[index],
        )
        self.peers = Peers()
        self.participation = Participation(cast(Any, Coordination()), cast(Any, topics))
        self.participation.peers = self.peers

    def to_ask_for(self, *places: TopicPartition, producer: Identity = PRODUCER) -> frozenset[TopicPartition]:
        return self.participation.to_ask_for("x", producer, frozenset(places), is_adding=False)

    async def ask(self, *places: TopicPartition, producer: Identity = PRODUCER) -> TransactionError:
        return await self.participation.ask("x", producer, frozenset(places), is_adding=False)

    def check(self, index: int, *, epoch: int = PRODUCER.epoch) -> None:
        header: Any = SimpleNamespace(producer_id=PRODUCER.producer_id, producer_epoch=epoch)
        self.participation.check_append(cast(Any, self.partitions[index]), header)

    def ended(self, index: int) -> None:
        self.participation.ended(cast(Any, self.partitions[index]), PRODUCER.producer_id)


async def test_a_batch_is_taken_when_the_coordinator_has_said_so_and_is_not_asked_for_again() -> None:
    bench = Bench()
    with pytest.raises(TransactionNotOpen):
        bench.check(0)
    assert bench.to_ask_for(FIRST) == {FIRST}
    assert await bench.ask(FIRST) is TransactionError.NONE
    bench.check(0)
    assert bench.to_ask_for(FIRST) == frozenset()
    ((broker, call),) = bench.peers.asked
    assert (broker, call.leader_epoch, call.places, call.is_adding) == ("b", 11, [("t", 0)], False)


async def test_a_word_is_for_the_partitions_it_names() -> None:
    bench = Bench()
    bench.peers.answer = PartTaken("NONE", [("t", 1)])
    await bench.ask(FIRST, SECOND)
    bench.check(0)
    with pytest.raises(TransactionNotOpen):
        bench.check(1)
    assert bench.to_ask_for(FIRST, SECOND) == {SECOND}


async def test_a_word_is_for_one_epoch_of_the_producer() -> None:
    bench = Bench()
    await bench.ask(FIRST)
    for epoch in (PRODUCER.epoch - 1, PRODUCER.epoch + 1):
        with pytest.raises(TransactionNotOpen):
            bench.check(0, epoch=epoch)
    later = Identity(producer_id=PRODUCER.producer_id, epoch=PRODUCER.epoch + 1)
    assert bench.to_ask_for(FIRST, producer=later) == {FIRST}


async def test_a_marker_takes_the_word_back() -> None:
    bench = Bench()
    await bench.ask(FIRST, SECOND)
    bench.ended(0)
    with pytest.raises(TransactionNotOpen):
        bench.check(0)
    bench.check(1)


async def test_an_answer_that_a_marker_has_overtaken_says_nothing() -> None:
    """Between the coordinator's word and the batch the transaction has ended: the batch would open one that nobody ends."""
    bench = Bench()
    bench.peers.is_let_go.clear()
    asking = asyncio.ensure_future(bench.ask(FIRST))
    await bench.peers.is_asked.wait()
    bench.ended(0)
    bench.peers.is_let_go.set()
    await asking
    with pytest.raises(TransactionNotOpen):
        bench.check(0)


async def test_a_word_ends_with_the_leadership_it_was_given_in() -> None:
    bench = Bench()
    await bench.ask(FIRST)
    bench.partitions[0].leader_epoch = 1
    with pytest.raises(TransactionNotOpen):
        bench.check(0)


@pytest.mark.parametrize("error", [Unavailable("away"), NotCoordinator("another"), NotLeader("nobody")])
async def test_without_an_answer_the_client_comes_back(error: Exception) -> None:
    bench = Bench()
    bench.peers.answer = error
    assert await bench.ask(FIRST) is TransactionError.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(TransactionNotOpen):
        bench.check(0)


async def test_a_refusal_is_passed_on_and_is_no_word() -> None:
    bench = Bench()
    bench.peers.answer = PartTaken("PRODUCER_FENCED", [])
    assert await bench.ask(FIRST) is TransactionError.PRODUCER_FENCED
    with pytest.raises(TransactionNotOpen):
        bench.check(0)


async def test_what_the_log_shows_open_needs_no_word() -> None:
    bench = Bench()
    bench.partitions[0].transactions = SimpleNamespace(first_offset=lambda producer_id: 5)
    bench.partitions[0].producers = SimpleNamespace(epoch_of=lambda producer_id: PRODUCER.epoch)
    assert bench.to_ask_for(FIRST) == frozenset()
    bench.check(0)
    with pytest.raises(ProducerFenced):
        bench.check(0, epoch=PRODUCER.epoch - 1)


async def test_what_is_not_led_here_is_refused_as_such_and_not_asked_for() -> None:
    """To be told that there is no transaction, a client would give it up."""
    bench = Bench()
    bench.partitions[0].removed = True
    assert bench.to_ask_for(FIRST, TopicPartition("gone", 0)) == frozenset()
    with pytest.raises(NotLeader):
        bench.check(0)


async def test_offsets_of_a_group_need_a_word_too() -> None:
    bench = Bench()
    check = bench.participation.check_offsets
    assert check("x", PRODUCER, "g") is TransactionError.INVALID_TXN_STATE
    await bench.ask(SECOND)
    assert check("x", PRODUCER, "g") is TransactionError.NONE


async def test_words_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS_MAX", 1)
    bench = Bench()
    await bench.ask(FIRST)
    await bench.ask(SECOND)
    bench.check(1)
    with pytest.raises(TransactionNotOpen):
        bench.check(0)
