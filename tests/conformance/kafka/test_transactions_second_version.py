"""Transactions of the second version (KIP-890): an epoch for each, and partitions that are added by producing to them."""

from pathlib import Path

import pytest
from tests.support.node import eventually, running_node
from tests.support.raw_kafka import Producer, RawKafka, produce_request

from headrace.records.batch import iterate_batches
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_records
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse
from headrace.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.txn_offset_commit_response import TxnOffsetCommitResponse

NOW_MS = 1_700_000_000_000


def begin(client: RawKafka, name: str) -> Producer:
    while True:
        found = client.call(InitProducerIdRequest(name, 60_000), 5, InitProducerIdResponse)
        if found.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert found.error_code == 0, found
            return Producer(found.producer_id, found.producer_epoch)


def send(
    client: RawKafka, topic: str, name: str | None, producer: Producer, value: bytes, *, sequence: int = 0
) -> PartitionProduceResponse:
    batch = build_batch(
        [NewRecord(value=value)],
        now_ms=NOW_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = produce_request(topic, 0, batch)
    request.transactional_id = name
    return client.call(request, 12, ProduceResponse).responses[0].partition_responses[0]


def end(client: RawKafka, name: str, producer: Producer, *, commits: bool = True) -> EndTxnResponse:
    return client.call(EndTxnRequest(name, producer.id, producer.epoch, commits), 5, EndTxnResponse)


def ended(client: RawKafka, name: str, producer: Producer, *, commits: bool = True) -> Producer:
    answer = end(client, name, producer, commits=commits)
    assert answer.error_code == 0, answer
    return Producer(answer.producer_id, answer.producer_epoch)


def committed(client: RawKafka, topic: str) -> list[bytes | None]:
    """What a reader of committed records sees, aborted ones taken out."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=1000,
        isolation_level=1,
        topics=[FetchTopic(topic, bytes(16), [wanted])],
    )
    [row] = client.call(request, 11, FetchResponse).responses[0].partitions
    starts = {(each.producer_id, each.first_offset) for each in row.aborted_transactions or []}
    aborting: set[int] = set()
    values: list[bytes | None] = []
    for header, batch in iterate_batches(row.records or b""):
        if header.is_control:
            aborting.discard(header.producer_id)
            continue
        if (header.producer_id, header.base_offset) in starts:
            aborting.add(header.producer_id)
        if header.producer_id not in aborting:
            values += [record.value for record in read_records(batch)]
    return values


def assert_committed(client: RawKafka, topic: str, *values: bytes) -> None:
    """The outcome is durable when it is told; its markers follow."""
    eventually(lambda: committed(client, topic) == list(values), 60, "other records are committed")


def test_features_tell_clients_of_the_second_version(client: RawKafka) -> None:
    for version in (3, 4):
        answer = client.call(ApiVersionsRequest("test", "1.0"), version, ApiVersionsResponse)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels == {"group.version": 1, "transaction.version": 2}
        assert answer.finalized_features_epoch >= 0
        # A range that begins with 0 ends the connection of clients that ask in v3.
        assert [each.name for each in answer.supported_features] == ([] if version == 3 else list(levels))


@pytest.mark.parametrize("word", ["", "b@d", "-1", "a b"])
def test_software_without_a_proper_name_is_refused(client: RawKafka, word: str) -> None:
    for request in (ApiVersionsRequest(word, "1.0"), ApiVersionsRequest("test", word)):
        assert client.call(request, 3, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST


def test_producing_adds_the_partition_and_each_end_gives_another_epoch(client: RawKafka, topic: str, name: str) -> None:
    producer = begin(client, name)
    assert send(client, topic, name, producer, b"first").error_code == 0
    assert committed(client, topic) == []
    following = ended(client, name, producer)
    assert (following.id, following.epoch) == (producer.id, producer.epoch + 1)
    assert_committed(client, topic, b"first")
    # What was long on its way, and a repetition, belong to a transaction that is over.
    late = send(client, topic, name, producer, b"late", sequence=1)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(client, topic, name, following, b"second").error_code == 0
    aborting = ended(client, name, following, commits=False)
    assert send(client, topic, name, aborting, b"third").error_code == 0
    assert ended(client, name, aborting).epoch == producer.epoch + 3
    assert_committed(client, topic, b"first", b"third")


def test_a_repeated_end_is_answered_like_the_first(client: RawKafka, topic: str, name: str) -> None:
    producer = begin(client, name)
    assert send(client, topic, name, producer, b"x").error_code == 0
    first = end(client, name, producer)
    assert end(client, name, producer) == first
    assert end(client, name, producer, commits=False).error_code == ErrorCode.INVALID_TXN_STATE
    assert end(client, name, Producer(producer.id, 77)).error_code == ErrorCode.PRODUCER_FENCED
    assert end(client, name, Producer(producer.id + 999, 0)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_batch_whose_name_is_not_told_is_part_of_nothing(client: RawKafka, topic: str, name: str) -> None:
    producer = begin(client, name)
    assert send(client, topic, None, producer, b"x").error_code == ErrorCode.TRANSACTION_ABORTABLE
    stranger = send(client, topic, f"{name}-stranger", producer, b"x")
    assert stranger.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced = send(client, topic, name, Producer(producer.id, producer.epoch + 1), b"x")
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(client, topic) == []
    assert client.offset_at(topic, 0, -1) == 0


def test_the_first_batch_of_a_transaction_has_sequence_zero(client: RawKafka, topic: str, name: str) -> None:
    """Another one was overtaken on its way, and the log must not have a hole where the first should be."""
    producer = begin(client, name)
    overtaking = send(client, topic, name, producer, b"second", sequence=1)
    assert overtaking.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, topic, name, producer, b"first").error_code == 0
    assert send(client, topic, name, producer, b"second", sequence=1).error_code == 0
    ended(client, name, producer)
    assert_committed(client, topic, b"first", b"second")


def ask_as_broker(
    client: RawKafka, *asked: AddPartitionsToTxnTransaction, version: int = 5
) -> list[list[tuple[str, int]]]:
    """Topic and error of each partition, for each transaction."""
    request = AddPartitionsToTxnRequest(transactions=list(asked))
    answer = client.call(request, version, AddPartitionsToTxnResponse)
    assert (answer.error_code, answer.results_by_topic) == (0, [])
    return [
        [(topic.name, row.partition_error_code) for topic in each.topic_results for row in topic.results_by_partition]
        for each in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_adds_and_verifies_partitions_of_several_transactions(
    client: RawKafka, topic: str, name: str, version: int
) -> None:
    names = [f"{name}-{nth}" for nth in range(2)]
    producers = [begin(client, each) for each in names]

    def asked(nth: int, *topics: str, verifies: bool, epoch: int = 0) -> AddPartitionsToTxnTransaction:
        rows = [AddPartitionsToTxnTopic(each, [0]) for each in topics]
        producer = producers[nth]
        return AddPartitionsToTxnTransaction(names[nth], producer.id, producer.epoch + epoch, verifies, rows)

    def ask(*transactions: AddPartitionsToTxnTransaction) -> list[list[tuple[str, int]]]:
        return ask_as_broker(client, *transactions, version=version)

    missing = [(topic, ErrorCode.TRANSACTION_ABORTABLE)]
    assert ask(asked(0, topic, verifies=True), asked(1, topic, verifies=True)) == [missing, missing]
    assert ask(asked(0, topic, verifies=False), asked(1, topic, verifies=True)) == [[(topic, 0)], missing]
    assert ask(asked(0, topic, verifies=True)) == [[(topic, 0)]]
    fenced, unknown = ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for verifies in (True, False):
        assert ask(asked(0, topic, verifies=verifies, epoch=7)) == [[(topic, fenced)]]
        rows = [(topic, ErrorCode.OPERATION_NOT_ATTEMPTED), ("nowhere", unknown)]
        assert ask(asked(1, topic, "nowhere", verifies=verifies), asked(0, topic, verifies=verifies)) == [
            rows,
            [(topic, 0)],
        ]
    assert ask() == []


def test_offsets_are_added_by_committing_them(client: RawKafka, topic: str, name: str) -> None:
    producer = begin(client, name)
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = TxnOffsetCommitRequest(
        name, f"{name}-group", producer.id, producer.epoch, topics=[TxnOffsetCommitRequestTopic(topic, [row])]
    )
    answer = client.call(request, 5, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    fetch = OffsetFetchRequest(group_id=f"{name}-group", topics=[OffsetFetchRequestTopic(topic, [0])])
    assert client.call(fetch, 5, OffsetFetchResponse).topics[0].partitions[0].committed_offset == -1
    ended(client, name, producer)
    eventually(
        lambda: client.call(fetch, 5, OffsetFetchResponse).topics[0].partitions[0].committed_offset == 7,
        10,
        "the offset is not committed",
    )
    again = client.call(request, 5, TxnOffsetCommitResponse)
    assert again.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_epoch_that_was_told_survives_kill_9(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            first = begin(client, "x")
            assert send(client, "t", "x", first, b"open").error_code == 0
        node.kill()
        node.start()
        with RawKafka(node.kafka) as client:
            told = ended(client, "x", first)
        node.kill()
        node.start()
        with RawKafka(node.kafka) as client:
            assert vars(ended(client, "x", first)) == vars(told)
            assert send(client, "t", "x", first, b"late", sequence=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert send(client, "t", "x", told, b"more").error_code == 0
            ended(client, "x", told)
            assert_committed(client, "t", b"open", b"more")
