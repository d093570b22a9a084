"""Partitions that a transaction gets because somebody produces to them: from Produce v12 on (KIP-890, version 2).

Older clients have added them by AddPartitionsToTxn before: then the coordinator is asked whether that is so, where it is another
broker. The frame waits until they are part of the transaction, durably: a record that no coordinator knows of would be in the log for
good, and nobody would ever decide about it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.topics import Topic
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError
from headrace.doors.kafka.session import Session
from headrace.records.batch import HEADER_SIZE, is_transactional, read_header
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.produce import ProduceCall

ADDED: Final = "partitions added"

_CODES: Final = {
    # Producers take the first for the end of their transaction, not of themselves, and try again after the others.
    TransactionError.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    TransactionError.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    TransactionError.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def code_of_addition(error: TransactionError) -> ErrorCode:
    return _CODES.get(error) or ErrorCode[error.name]


def to_add(
    call: ProduceCall, topics: Sequence[Topic | None], session: Session, *, is_adding: bool
) -> dict[Identity, frozenset[TopicPartition]]:
    """What the transactional batches of `call` still need, by who has signed them. `topics` are those it may write to."""
    assert call.transactional_id is not None
    wanted: dict[Identity, set[TopicPartition]] = {}
    for topic, live in zip(call.topics, topics, strict=True):
        if live is None or live.is_internal:
            continue
        for entry in topic.partitions:
            if 0 <= entry.index < len(live.partitions) and _is_signed(entry.records):
                header = read_header(entry.records)
                producer = Identity(producer_id=header.producer_id, epoch=header.producer_epoch)
                wanted.setdefault(producer, set()).add(TopicPartition(live.name, entry.index))
    to_ask_for = session.broker.participation.to_ask_for
    missing = {
        producer: to_ask_for(call.transactional_id, producer, frozenset(places), is_adding=is_adding)
        for producer, places in wanted.items()
    }
    return {producer: places for producer, places in missing.items() if places}


def _is_signed(batch: memoryview) -> bool:
    return len(batch) >= HEADER_SIZE and is_transactional(batch)


def add(
    transactional_id: str,
    missing: Mapping[Identity, frozenset[TopicPartition]],
    session: Session,
    *,
    is_adding: bool,
) -> Deferred[str]:
    """Resolved when all is decided; `session.additions` has what was refused then."""
    done: Deferred[str] = Deferred()

    async def ask() -> None:
        refused: dict[TopicPartition, TransactionError] = {}
        for producer, places in missing.items():
            error = await session.broker.participation.ask(transactional_id, producer, places, is_adding=is_adding)
            if error is not TransactionError.NONE:
                refused |= dict.fromkeys(places, error)
        session.additions = refused
        done.resolve(ADDED)

    session.door.tasks.spawn(ask())
    return done
