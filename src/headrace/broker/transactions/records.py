"""The records of `__transaction_state`: Kafka's own keys and values.

As in Kafka, `previous_epoch` is not kept: it only recognises a repeated request, and whoever repeats one across a
restart of the coordinator is fenced rather than guessed about. Where an end has raised the epoch, it is the one before.
"""

from typing import Final

import msgspec

from headrace.broker.transactions.events import TopicPartition, TransactionImage, TransactionState
from headrace.records.record import NewRecord, Record
from headrace.wire.coordination.messages.transaction_log_key import TransactionLogKey
from headrace.wire.coordination.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from headrace.wire.coordination.versioned import BODY_AT, encode_versioned, read_version

KEY_VERSION: Final = 0
_BUMPING: Final = 2
"""The version of transactions in which an end raises the epoch."""
VALUE_VERSION: Final = 1


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """None: forgotten."""

    transactional_id: str
    image: TransactionImage | None


def encode(transactional_id: str, image: TransactionImage | None) -> NewRecord:
    key = encode_versioned(TransactionLogKey(transactional_id), KEY_VERSION)
    if image is None:
        return NewRecord(key=key, value=None)
    by_topic: dict[str, list[int]] = {}
    for each in sorted(image.partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    is_open = image.state not in (TransactionState.EMPTY, TransactionState.DEAD)
    value = TransactionLogValue(
        producer_id=image.producer_id,
        previous_producer_id=image.previous_producer_id,
        next_producer_id=image.next_producer_id,
        producer_epoch=image.epoch,
        transaction_timeout_ms=image.timeout_ms,
        transaction_status=image.state.value,
        transaction_partitions=[PartitionsSchema(topic, ids) for topic, ids in by_topic.items()] if is_open else None,
        transaction_last_update_timestamp_ms=image.updated_ms,
        transaction_start_timestamp_ms=image.started_ms,
        client_transaction_version=_BUMPING if image.is_bumped else 0,
    )
    return NewRecord(key=key, value=encode_versioned(value, VALUE_VERSION))


def decode(record: Record) -> TransactionRecord:
    key = record.key or b""
    transactional_id = TransactionLogKey.decode(key, read_version(key), BODY_AT).transactional_id
    if record.value is None:
        return TransactionRecord(transactional_id=transactional_id, image=None)
    value = TransactionLogValue.decode(record.value, read_version(record.value), BODY_AT)
    is_bumped = value.client_transaction_version >= _BUMPING
    image = TransactionImage(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        previous_epoch=value.producer_epoch - 1 if is_bumped else -1,
        next_producer_id=value.next_producer_id,
        is_bumped=is_bumped,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or []
            for partition in each.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
    )
    return TransactionRecord(transactional_id=transactional_id, image=image)
