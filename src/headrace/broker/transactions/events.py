"""What goes into and comes out of the coordinator of one transactional id.

A `ticket` is the driver's number for a request that waits for its answer; the machine only gives it back.
"""

from enum import Enum, auto
from typing import TypeAlias

import msgspec


class TransactionError(Enum):
    """Named as the Kafka protocol names them; the door has the codes, and chooses by request version."""

    NONE = auto()
    CONCURRENT_TRANSACTIONS = auto()
    COORDINATOR_NOT_AVAILABLE = auto()
    INVALID_PRODUCER_ID_MAPPING = auto()
    INVALID_REQUEST = auto()
    INVALID_TRANSACTION_TIMEOUT = auto()
    INVALID_TXN_STATE = auto()
    PRODUCER_FENCED = auto()


class TransactionState(Enum):
    """Values are the numbers kept in the transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    topic: str
    partition: int


class Identity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who a producer claims to be."""

    producer_id: int
    epoch: int


class TransactionImage(msgspec.Struct, frozen=True, kw_only=True):
    """What of a transactional id outlives its coordinator."""

    producer_id: int
    epoch: int = -1
    """-1: named, never initialised."""
    previous_producer_id: int = -1
    previous_epoch: int = -1
    """The epoch a producer held before its last bump: a repeat of that request is recognised by it."""
    next_producer_id: int = -1
    """Whom the producer is told to be from the next transaction on, where this one used up the last epoch."""
    is_bumped: bool = False
    """The end of the last transaction has raised the epoch (KIP-890, version 2): a repeat of it comes with the one before."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = 0


# Events


class Init(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    timeout_ms: int
    expected: Identity | None = None
    """A producer that recovers says who it was (InitProducerId v3, KIP-360)."""
    spare_producer_id: int
    """The id to take, should the present one be used up."""


class AddPartitions(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    producer: Identity
    partitions: frozenset[TopicPartition]


class End(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    producer: Identity
    is_commit: bool
    is_bumping: bool = False
    """The next transaction has another epoch, which the answer tells (KIP-890, version 2)."""
    spare_producer_id: int = -1
    """The id to go on with, should epochs be used up."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed; `next_deadline_ms` says when it matters."""


class Persisted(msgspec.Struct, frozen=True, kw_only=True):
    """The image last asked for is durable."""


class PersistFailed(msgspec.Struct, frozen=True, kw_only=True):
    pass


class MarkersWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Every partition of the transaction carries its outcome."""


Request: TypeAlias = Init | AddPartitions | End
Event: TypeAlias = Request | Tick | Persisted | PersistFailed | MarkersWritten


# Actions


class AnswerProducer(msgspec.Struct, frozen=True, kw_only=True):
    """To an init, and to an end that raises the epoch: who the producer is from now on."""

    ticket: int
    error: TransactionError = TransactionError.NONE
    producer: Identity = Identity(producer_id=-1, epoch=-1)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    error: TransactionError = TransactionError.NONE


class Persist(msgspec.Struct, frozen=True, kw_only=True):
    """Make this durable (None: forget the id), then report `Persisted` or `PersistFailed`."""

    image: TransactionImage | None


class WriteMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Append the outcome to every partition, again and again until it is there; then report `MarkersWritten`."""

    producer: Identity
    is_commit: bool
    partitions: frozenset[TopicPartition]


class TimedOut(msgspec.Struct, frozen=True, kw_only=True):
    """A fact worth logging: the producer was too slow, and its transaction is being aborted."""

    producer: Identity


Action: TypeAlias = AnswerProducer | Answer | Persist | WriteMarkers | TimedOut
