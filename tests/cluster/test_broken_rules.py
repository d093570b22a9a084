"""Rules of several brokers that no seed of the simulation shows broken: one scripted history for each, which must notice its mutant.

A fault that needs one message of one broker to come late, at one place, is scripted there instead of being hoped for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.shared_mutants import SHARED_MUTANTS
from tests.support.raw_kafka import RawKafka, produce_request
from tests.support.shared_nodes import SharedNodes, shared_nodes
from tests.unit.tier.test_takeover import Known, history

from headrace.broker.peers import calls
from headrace.broker.peers.calls import Done, WriteMarker
from headrace.clock import SystemClock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.plans import Fence
from headrace.errors import HeadraceError
from headrace.ids import BrokerEpoch
from headrace.log.epochs import EpochStart
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.tier import takeover
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.produce_response import ProduceResponse

NAMES = ("a", "b", "c")
PATIENCE_S = 60.0
LATER = {14, 15, 16, 51}
"""The coordinator is being read, is not there, is another one, or still ends the transaction before."""

Scenario = Callable[[Path], Awaitable[None]]


class Producer:
    """One transactional producer, coordinated by `a` at first, that writes to a partition of `c`."""

    def __init__(self, nodes: SharedNodes, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.id = self.epoch = -1
        self.partition = nodes.members["a"].broker.topics.get("orders").leaders.index("c")
        self._sequence = 0

    async def init(self) -> None:
        request = InitProducerIdRequest(self.name, 60_000)
        answer = await self._until_done("a", request, 4, InitProducerIdResponse)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self, coordinator: str) -> None:
        topics = [AddPartitionsToTxnTopic("orders", [self.partition])]
        request = AddPartitionsToTxnRequest(self.name, self.id, self.epoch, topics)
        await self._until_done(coordinator, request, 3, AddPartitionsToTxnResponse)

    async def commit(self, coordinator: str) -> None:
        request = EndTxnRequest(self.name, self.id, self.epoch, True)
        await self._until_done(coordinator, request, 3, EndTxnResponse)

    async def write(self) -> int:
        """The error that the leader answers with."""
        batch = build_batch(
            [NewRecord(value=b"%d" % self._sequence)],
            now_ms=1,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        request = produce_request("orders", self.partition, batch, transactional_id=self.name)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._call("c", request, 9, ProduceResponse)
                code: int = answer.responses[0].partition_responses[0].error_code
                if code != ErrorCode.NOT_ENOUGH_REPLICAS:
                    break
                await asyncio.sleep(0.01)  # It has not heard yet who the coordinator is.
        self._sequence += not code
        return code

    @property
    def log(self) -> Any:  # Any: the partition of `c`, looked into
        return self.nodes.members["c"].broker.topics.partition("orders", self.partition)

    async def _until_done(self, member: str, request: Any, version: int, answer: Any) -> Any:  # Any: messages
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self._call(member, request, version, answer)
                code = getattr(found, "error_code", 0)
                for topic in getattr(found, "results_by_topic", ()):
                    code = code or topic.results_by_partition[0].partition_error_code
                if not code:
                    return found
                assert code in LATER, code
                await asyncio.sleep(0.01)

    async def _call(self, member: str, request: Any, version: int, answer: Any) -> Any:  # Any: messages
        def call() -> Any:  # Any: as above
            with RawKafka(self.nodes.members[member].address) as client:
                return client.call(request, version, answer)

        return await asyncio.to_thread(call)


async def begun(nodes: SharedNodes) -> Producer:
    await nodes.members["a"].broker.topics.create("orders", partitions=3)
    async with asyncio.timeout(PATIENCE_S):
        while (found := nodes.members["c"].broker.topics.find("orders")) is None or all(
            each.removed for each in found.partitions
        ):
            await asyncio.sleep(0.01)
    transactions = nodes.members["a"].broker.transactions
    (name, *_) = [each for each in map(str, range(20)) if await transactions.leader_of(each) == "a"]
    producer = Producer(nodes, name)
    await producer.init()
    return producer


async def a_straggler_opens_no_transaction(directory: Path) -> None:
    """A batch that comes when its transaction is over, or before it has begun: nobody would ever end what it opens."""
    async with shared_nodes(directory, NAMES) as nodes:
        producer = await begun(nodes)
        assert await producer.write(), "taken, though no transaction has this partition"
        await producer.add("a")
        assert await producer.write() == 0
        await producer.commit("a")
        async with asyncio.timeout(PATIENCE_S):
            while producer.log.last_stable_offset < producer.log.high_watermark:
                await asyncio.sleep(0.01)
        assert await producer.write(), "taken, though the transaction is over"


async def a_late_marker_ends_no_other_transaction(directory: Path) -> None:
    """A coordinator that lost its partition repeats a marker which its successor has written long since."""
    async with shared_nodes(directory, NAMES) as nodes:
        producer = await begun(nodes)
        former = nodes.members["a"].broker.transactions
        epoch = former.epoch_of(producer.name)
        for coordinator in ("a", "b"):
            if coordinator == "b":
                await nodes.move("a", ["b"])
            await producer.add(coordinator)
            assert await producer.write() == 0
            await producer.commit(coordinator)
        await producer.add("b")
        assert await producer.write() == 0
        stable = producer.log.last_stable_offset
        peers = former.markers.peers
        assert peers is not None
        late = WriteMarker(
            "orders", producer.partition, producer.log.leader_epoch, producer.id, producer.epoch, epoch, True
        )
        with pytest.raises(HeadraceError, match="coordinator epoch"):
            await calls.ask(peers, "c", late, Done)
        assert producer.log.last_stable_offset == stable, "the transaction is still open"


async def a_fenced_broker_writes_nothing(directory: Path) -> None:
    async with shared_nodes(directory, ("a", "b")) as nodes:
        await nodes.members["b"].broker.topics.create("orders", partitions=2)
        item = await nodes.store.get(keys.broker_identity("a"))
        assert item is not None
        identity = values.decode(pb.BrokerIdentity, item.value)
        late = await Cluster.load(nodes.store, SystemClock())
        late.enter(Fence("a", BrokerEpoch(identity.broker_epoch), item.mod_revision))
        (place,) = [each for each in late.topics.led_by("a") if each[0] == "orders"]
        await nodes.fence("a")
        with pytest.raises(HeadraceError, match=r"newer|incarnation|epoch"):
            await late.raise_ceilings({place: 1_000_000})


async def nothing_is_claimed_for_the_next_leader(directory: Path) -> None:
    """What was written in one epoch is not committed in the name of another."""
    async with shared_nodes(directory, ("a", "b")) as nodes:
        topic = await nodes.members["a"].broker.topics.create("orders", partitions=2)
        index = topic.leaders.index("a")
        epoch = topic.partitions[index].leader_epoch
        await nodes.move("a", ["b"])
        async with asyncio.timeout(PATIENCE_S):
            while topic.leaders[index] != "b":
                await asyncio.sleep(0.01)
        tier = nodes.members["a"].node._tier
        assert tier is not None
        with pytest.raises(HeadraceError, match="is led by b"):
            tier.commits.claim(topic.id, index, base_offset=0, end_offset=1, leader_epoch=epoch)


async def what_a_deposed_leader_saved_ends_with_its_epoch(directory: Path) -> None:
    """It knew of three batches; one of them was uploaded before another broker led, which gave the offsets of the others anew."""
    batches = history([(1, "plain")] * 3)
    picture = Known(batches, 1).picture(3, 1)
    partition: Any = SimpleNamespace(
        uploaded_end=2,
        log_start=0,
        epoch_starts=[EpochStart(0, 0), EpochStart(1, 1)],
        producers=None,
        transactions=None,
    )
    takeover._apply(partition, takeover._true_part([picture], partition), [])
    (known,) = partition.producers.snapshot()
    assert [batch[2] for batch in known.batches] == [0], "a retry of what nobody has would be taken for a duplicate"


SCENARIOS: dict[str, Scenario] = {
    "nobody-is-asked": a_straggler_opens_no_transaction,
    "deposed-coordinator-believed": a_late_marker_ends_no_other_transaction,
    "not-fenced": a_fenced_broker_writes_nothing,
    "claimed-in-any-epoch": nothing_is_claimed_for_the_next_leader,
    "deposed-leader-believed": what_a_deposed_leader_saved_ends_with_its_epoch,
}


@pytest.mark.parametrize("mutant", SCENARIOS)
async def test_the_rule_holds(mutant: str, tmp_path: Path) -> None:
    await SCENARIOS[mutant](tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SCENARIOS)
async def test_its_mutant_is_noticed(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SHARED_MUTANTS[mutant](monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await SCENARIOS[mutant](tmp_path)
