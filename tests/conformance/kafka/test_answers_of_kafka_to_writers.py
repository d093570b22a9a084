"""What `make same-as-kafka` has found in produce requests, transactions, and what is kept of them."""

import struct

import pytest
from tests.support.raw_groups import add_offsets, commit_in_transaction, end, init_transactions, transactional_batch
from tests.support.raw_kafka import Producer, RawKafka, batch_of, produce_request

from headrace.records.batch import Codec
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse

NOW_MS = 1_700_000_000_000


def begun(client: RawKafka, name: str) -> Producer:
    found = init_transactions(client, name)
    assert found.error_code == 0
    return Producer(found.producer_id, found.producer_epoch)


def produce(
    client: RawKafka, topic: str, batch: bytes | bytearray, *, version: int, transactional_id: str | None = None
) -> PartitionProduceResponse:
    request = produce_request(topic, 0, bytearray(batch))
    request.transactional_id = transactional_id
    return client.call(request, version, ProduceResponse).responses[0].partition_responses[0]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (batch_of([b"x" * 100])[:42], ErrorCode.INVALID_RECORD),
        (batch_of([b"x" * 100])[:-1], ErrorCode.INVALID_RECORD),
        (b"\0" * 61, ErrorCode.CORRUPT_MESSAGE),
        (batch_of([b"x"])[:16] + b"\x03" + batch_of([b"x"])[17:], ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["cut in its header", "cut in its records", "no length", "a format nobody knows"],
)
def test_a_batch_that_is_none_is_told_from_one_that_was_changed(
    client: RawKafka, topic: str, batch: bytes, code: ErrorCode
) -> None:
    """What is cut short is not sent again: no repetition makes it whole."""
    assert produce(client, topic, batch, version=9).error_code == code


def test_what_is_no_batch_is_told_before_its_compression(client: RawKafka, topic: str) -> None:
    batch = build_batch([NewRecord(value=b"x" * 100)], now_ms=NOW_MS, codec=Codec.ZSTD)
    struct.pack_into(">b", batch, 16, 3)
    assert produce(client, topic, batch, version=4).error_code == ErrorCode.CORRUPT_MESSAGE


def test_compression_that_a_client_cannot_know_is_told_before_whatever_else_is_wrong(
    client: RawKafka, topic: str
) -> None:
    batch = build_batch([NewRecord(value=b"x" * 100)], now_ms=NOW_MS, codec=Codec.ZSTD)
    too_short = batch[:8] + struct.pack(">i", 14) + batch[12:]
    assert produce(client, topic, too_short, version=4).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, batch + batch, version=4).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, too_short, version=7).error_code == ErrorCode.CORRUPT_MESSAGE


def test_what_is_no_batch_is_told_before_its_size_and_its_size_before_its_checksum(client: RawKafka, name: str) -> None:
    client.create_topic(name, configs={"max.message.bytes": "100"})
    batch = bytearray(batch_of([b"x" * 100]))
    assert produce(client, name, batch[:-1], version=9).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, name, batch + batch, version=9).error_code == ErrorCode.INVALID_RECORD
    batch[17] ^= 0xFF
    assert produce(client, name, batch, version=9).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_transaction_that_is_not_open_is_told_before_what_is_wrong_with_its_records(
    client: RawKafka, name: str
) -> None:
    """Also where records are looked into beside the loop: those of compressed batches for compacted topics."""
    client.create_topic(name, configs={"cleanup.policy": "compact"})
    producer = begun(client, name)
    batch = build_batch(
        [NewRecord(value=b"x" * 100)],
        now_ms=NOW_MS,
        codec=Codec.GZIP,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    answer = produce(client, name, batch, version=9, transactional_id=name)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    without_key = build_batch([NewRecord(value=b"x" * 100, timestamp_ms=2**60)], now_ms=NOW_MS, codec=Codec.GZIP)
    assert produce(client, name, without_key, version=9).error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_batch_does_not_overtake_one_that_was_refused(client: RawKafka, topic: str, name: str) -> None:
    producer = begun(client, name)
    refused = transactional_batch([b"first"], producer, 5, now_ms=NOW_MS)
    assert produce(client, topic, refused, version=9, transactional_id=name).error_code == ErrorCode.INVALID_TXN_STATE
    following = transactional_batch([b"second"], producer, 6, now_ms=NOW_MS)
    for _ in range(2):
        answer = produce(client, topic, following, version=12, transactional_id=name)
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(client, topic, refused, version=9, transactional_id=name).base_offset == 0
    assert produce(client, topic, following, version=9, transactional_id=name).base_offset == 1


def test_an_end_of_the_first_version_is_fenced_by_one_of_the_second(client: RawKafka, topic: str, name: str) -> None:
    producer = begun(client, name)
    batch = transactional_batch([b"x"], producer, 0, now_ms=NOW_MS)
    assert produce(client, topic, batch, version=12, transactional_id=name).error_code == 0
    ended = client.call(EndTxnRequest(name, producer.id, producer.epoch, False), 5, EndTxnResponse)
    assert ended.producer_epoch == producer.epoch + 1
    for is_commit in (True, False):
        assert end(client, name, producer, is_commit=is_commit) == ErrorCode.PRODUCER_FENCED


def test_offsets_that_are_only_on_their_way_are_not_among_all_offsets(client: RawKafka, topic: str, name: str) -> None:
    producer = begun(client, name)
    assert add_offsets(client, name, producer, name) == 0
    assert commit_in_transaction(client, name, producer, name, topic, 5) == 0
    answer = client.call(OffsetFetchRequest(group_id=name, topics=None, require_stable=True), 7, OffsetFetchResponse)
    assert (answer.error_code, answer.topics) == (0, [])


def test_records_that_are_compacted_are_not_deleted(client: RawKafka, name: str) -> None:
    client.create_topic(name, configs={"cleanup.policy": "compact"})
    for offset in (0, 3, -1):
        request = DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])], 1000)
        row = client.call(request, 1, DeleteRecordsResponse).topics[0].partitions[0]
        assert (row.error_code, row.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)
