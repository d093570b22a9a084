"""Internal topics belong to their coordinators at every door, and nothing in them keeps a node from starting."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.support.node import NodeProcess, running_node
from tests.support.outages import problems
from tests.support.raw_kafka import RawKafka

from headrace.clients import BlockingMlogClient, BlockingRustLogClient, ClientError
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.mlog.codes import AckMode
from headrace.wire.mlog.errors import RPCError

INTERNAL = ("__consumer_offsets", "__transaction_state")
WITHOUT_THE_RULE = [
    sys.executable,
    "-c",
    "import runpy, headrace.broker.produce as produce, headrace.broker.topics as topics\n"
    "produce.check_client_may = topics.check_client_may = lambda *_: None\n"
    "runpy.run_module('headrace', run_name='__main__')",
]
"""A node as it was before clients were kept out."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data") as running:
        yield running


def committed(node: NodeProcess, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group, "enable.auto.commit": False})
    (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def use(node: NodeProcess) -> None:
    """A committed offset and a transaction: both internal topics come into being."""
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "till"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"one", partition=0)
    producer.commit_transaction()
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "team", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()


def test_no_door_lets_clients_touch_internal_topics(node: NodeProcess) -> None:
    with (
        BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog,
        BlockingMlogClient([node.endpoints["mlog"]]) as mlog,
    ):
        json_doors: list[tuple[type[Exception], Callable[[str], object]]] = [
            (ClientError, lambda name: rustlog.create_topic(name, partitions=1)),
            (RPCError, mlog.create_topic),
        ]
        for error, attempt in json_doors:
            for name in INTERNAL:
                with pytest.raises(error):
                    attempt(name)
        use(node)
        json_doors += [
            (ClientError, lambda name: rustlog.produce(name, [b"x"])),
            *((RPCError, lambda name, acks=acks: mlog.produce(name, b"x", acks=acks)) for acks in AckMode),
            (RPCError, lambda name: mlog.produce_batch(name, [b"x"])),
            (RPCError, mlog.delete_topic),
        ]
        ends = {name: ends_of(rustlog, name) for name in INTERNAL}
        for error, attempt in json_doors:
            for name in INTERNAL:
                with pytest.raises(error):
                    attempt(name)
        admin_is_refused(node)
        assert {name: ends_of(rustlog, name) for name in INTERNAL} == ends
        transactions_cannot_take_them_in(node)
    node.restart()
    assert committed(node, "team") == 1


def ends_of(client: BlockingRustLogClient, topic: str) -> list[int]:
    return [each.high_watermark for each in client.describe_topic(topic).partitions]


def admin_is_refused(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for name in INTERNAL:
        refused(admin.delete_topics([name])[name], ErrorCode.INVALID_TOPIC_EXCEPTION)
        refused(admin.create_partitions([NewPartitions(name, 80)])[name], ErrorCode.INVALID_TOPIC_EXCEPTION)
        (cut,) = admin.delete_records([TopicPartition(name, 0, -1)]).values()
        refused(cut, ErrorCode.INVALID_TOPIC_EXCEPTION)
        for key, value in (("cleanup.policy", "delete"), ("retention.ms", "1")):
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            (altered,) = admin.incremental_alter_configs([resource]).values()
            refused(altered, ErrorCode.INVALID_CONFIG)


def refused(attempt: object, code: ErrorCode) -> None:
    with pytest.raises(KafkaException) as caught:
        attempt.result(60)  # type: ignore[attr-defined]  # a future of an untyped library
    assert caught.value.args[0].code() == code


def transactions_cannot_take_them_in(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        asked = InitProducerIdRequest(transactional_id="thief", transaction_timeout_ms=60_000)
        producer = client.call(asked, 4, InitProducerIdResponse)
        topics = [AddPartitionsToTxnTopic(name, [0]) for name in (*INTERNAL, "orders", "missing")]
        request = AddPartitionsToTxnRequest(
            transactional_id="thief",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=topics,
        )
        answer = client.call(request, 3, AddPartitionsToTxnResponse)
        codes = [row.results_by_partition[0].partition_error_code for row in answer.results_by_topic]
        denied, untried, unknown = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert codes == [denied, denied, untried, unknown]


def test_a_node_starts_whatever_clients_once_wrote_into_internal_topics(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", program=WITHOUT_THE_RULE)
    try:
        node.start()
        use(node)
        with RawKafka(node.kafka) as client:
            for name in INTERNAL:
                batch = build_batch([NewRecord(key=b"?", value=b"from a client")], now_ms=1)
                assert client.produce(name, 0, batch).error_code == 0
        node.kill()
        node.program = None
        node.start()
        assert committed(node, "team") == 1
        assert sorted(each.split(" cannot", 1)[0] for each in problems(node)) == [
            f"1 records of {name}" for name in INTERNAL
        ]
    finally:
        if node.process is not None:
            node.process.kill()
            node.process.wait()
