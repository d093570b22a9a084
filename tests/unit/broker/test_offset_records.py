"""Records of the internal topics: Kafka's own schemas, read back as they were written."""

import pytest

from headrace.broker import offset_records
from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.internal_topic import java_hash
from headrace.broker.offset_records import (
    ClassicGroupRecord,
    CommittedOffset,
    ConsumerGroupRecord,
    OffsetRecord,
)
from headrace.broker.transactions import records as transaction_records
from headrace.broker.transactions.events import TopicPartition, TransactionImage, TransactionState
from headrace.records.record import NewRecord, Record


def stored(record: NewRecord) -> Record:
    return Record(0, 0, record.key, record.value)


@pytest.mark.parametrize("topic_id", [b"i" * 16, offset_records.NO_TOPIC_ID])
def test_offsets_are_read_back(topic_id: bytes) -> None:
    committed = CommittedOffset(offset=7, leader_epoch=2, metadata="é", commit_ms=5)
    record = stored(offset_records.encode_offset("g", "t", 3, committed, topic_id=topic_id))
    expected = OffsetRecord(group="g", topic="t", partition=3, committed=committed, topic_id=topic_id)
    assert offset_records.decode(record) == expected


def test_forgotten_offsets_are_read_back() -> None:
    record = stored(offset_records.encode_offset("g", "t", 3, None))
    assert offset_records.decode(record) == OffsetRecord(group="g", topic="t", partition=3, committed=None)


def test_offset_has_the_bytes_of_kafka() -> None:
    """Key version 1: group, topic, partition. Value version 4: offset, leader epoch, metadata, commit time, topic id."""
    committed = CommittedOffset(offset=2, metadata="m", commit_ms=3)
    record = offset_records.encode_offset("g", "t", 1, committed, topic_id=b"i" * 16)
    assert record.key == bytes.fromhex("0001 0001 67 0001 74 00000001")
    fields = bytes.fromhex("0004 0000000000000002 ffffffff 02 6d 0000000000000003")
    assert record.value == fields + bytes.fromhex("01 00 10") + b"i" * 16


def test_offsets_of_kafka_before_topic_ids_are_understood() -> None:
    """Value version 3: offset, leader epoch, metadata, commit time."""
    key = bytes.fromhex("0001 0001 67 0001 74 00000001")
    value = bytes.fromhex("0003 0000000000000002 ffffffff 0001 6d 0000000000000003")
    expected = CommittedOffset(offset=2, metadata="m", commit_ms=3)
    assert offset_records.decode(Record(0, 0, key, value)) == OffsetRecord(
        group="g", topic="t", partition=1, committed=expected
    )


def test_classic_group_is_read_back() -> None:
    member = classic.MemberSnapshot(
        member_id="m",
        instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        subscription=b"s",
        assignment=b"a",
    )
    snapshot = classic.GroupSnapshot(
        protocol_type="consumer", generation=4, protocol_name="range", leader_id="m", members=(member,), since_ms=9
    )
    for kept in (snapshot, None):
        record = stored(offset_records.encode_classic_group("g", kept))
        assert offset_records.decode(record) == ClassicGroupRecord(group="g", snapshot=kept)


def test_consumer_group_is_read_back() -> None:
    member = consumer.MemberSnapshot(
        member_id="m",
        instance_id=None,
        rack_id="r",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        topic_names=frozenset({"t"}),
        topic_regex="u.*",
        server_assignor="range",
        epoch=3,
        previous_epoch=2,
        has_left=False,
        assigned=frozenset({(b"x" * 16, 0)}),
        revoking=frozenset({(b"x" * 16, 1)}),
        target=frozenset({(b"x" * 16, 0)}),
    )
    snapshot = consumer.GroupSnapshot(epoch=3, target_epoch=3, since_ms=0, members=(member,))
    for kept in (snapshot, None):
        record = stored(offset_records.encode_consumer_group("gröup", kept))
        assert offset_records.decode(record) == ConsumerGroupRecord(group="gröup", snapshot=kept)


def test_kinds_of_other_versions_are_passed_over() -> None:
    assert offset_records.decode(Record(0, 0, b"\x00\x05whatever", b"")) is None


@pytest.mark.parametrize("state", list(TransactionState))
def test_transactions_are_read_back(state: TransactionState) -> None:
    is_open = state in (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    )
    image = TransactionImage(
        producer_id=5,
        epoch=2,
        previous_producer_id=4,
        timeout_ms=1000,
        state=state,
        partitions=frozenset({TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)})
        if is_open
        else frozenset(),
        started_ms=7 if is_open else -1,
        updated_ms=8,
    )
    for kept in (image, None):
        found = transaction_records.decode(stored(transaction_records.encode("x", kept)))
        assert (found.transactional_id, found.image) == ("x", kept)


@pytest.mark.parametrize(("text", "code"), [("", 0), ("a", 97), ("polygenelubricants", 0)])
def test_partition_of_a_key_is_the_one_kafka_chooses(text: str, code: int) -> None:
    """`polygenelubricants` has the hash code -2^31, whose absolute value Java cannot hold."""
    assert java_hash(text) == code
    assert 0 <= java_hash(text) < 2**31
