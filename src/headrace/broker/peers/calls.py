"""Calls between brokers, and their answers. Each names what it is fenced by: the epoch of the leader that is meant.

Fields are only ever added, at the end and with a default: brokers of two versions talk to each other while a cluster is upgraded.
"""

from collections.abc import Awaitable
from typing import Any, Final, Protocol, TypeVar

import msgspec

from headrace.errors import MalformedRequest


class Peers(Protocol):
    """The other brokers. Calls to one of them are carried out in the order in which they are made."""

    def call(self, broker: str, kind: str, body: bytes) -> Awaitable[bytes]:
        """Raises, at once or later, `Unavailable` where that broker cannot be reached, or what it raised itself."""
        ...


class PeerCall(msgspec.Struct, frozen=True, array_like=True):
    pass


class Done(PeerCall, frozen=True):
    """The answer to what has none."""


class WriteMarker(PeerCall, frozen=True):
    """From a coordinator of transactions to the leader of a partition: end the producer's transaction there."""

    topic: str
    partition: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class TakePart(PeerCall, frozen=True):
    """From the leader of partitions to a coordinator of transactions: are they part of this one, or else shall they be?"""

    transactional_id: str
    leader_epoch: int
    """Of the partition that the coordinator keeps the transaction in."""
    producer_id: int
    producer_epoch: int
    places: list[tuple[str, int]]
    is_adding: bool


class PartTaken(PeerCall, frozen=True):
    error: str
    """The name of a `TransactionError`."""
    missing: list[tuple[str, int]]
    """Those that are no part of it."""


class Append(PeerCall, frozen=True):
    """A batch of a client that does not know leaders, to the one there is."""

    topic: str
    partition: int
    leader_epoch: int
    batch: bytes


class AppendedAt(PeerCall, frozen=True):
    base_offset: int


class KeepEvents(PeerCall, frozen=True):
    """Events of the audit, to the broker that leads its topic."""

    leader_epoch: int
    events: list[bytes]


class ReadRecords(PeerCall, frozen=True):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    max_records: int


class RecordsFound(PeerCall, frozen=True):
    records: list[tuple[int, int, bytes | None, bytes | None]]
    """Offset, time, key and value of each."""
    next_offset: int
    log_start: int
    high_watermark: int


class DescribePartitions(PeerCall, frozen=True):
    topic: str
    places: list[tuple[int, int]]
    """Partition and leader epoch of each."""


class PartitionFacts(PeerCall, frozen=True):
    log_start: int
    high_watermark: int
    end_offset: int
    segment_count: int


class PartitionsDescribed(PeerCall, frozen=True):
    facts: list[PartitionFacts]
    """In the order in which they were asked for."""


class CommitOffset(PeerCall, frozen=True):
    """To the broker that looks after the group."""

    group: str
    leader_epoch: int
    topic: str
    partition: int
    offset: int
    commit_ms: int
    is_volatile: bool


class FindOffset(PeerCall, frozen=True):
    group: str
    leader_epoch: int
    topic: str
    partition: int


class OffsetFound(PeerCall, frozen=True):
    offset: int | None


class ListGroups(PeerCall, frozen=True):
    """To whoever looks after groups, for a list of all there are."""

    limit: int


class GroupFacts(PeerCall, frozen=True):
    group: str
    kind: str
    state: str
    members: int
    topics: int
    lag: int
    """Over the partitions that the broker leads which was asked."""


class GroupsListed(PeerCall, frozen=True):
    groups: list[GroupFacts]
    is_complete: bool
    """False: there are more than were asked for."""


class ListTransactions(PeerCall, frozen=True):
    """To whoever coordinates transactions, for a list of all there are."""

    limit: int


class TransactionFacts(PeerCall, frozen=True):
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    """The name of a `TransactionState`."""
    timeout_ms: int
    started_ms: int
    places: list[tuple[str, int]]


class TransactionsListed(PeerCall, frozen=True):
    transactions: list[TransactionFacts]
    is_complete: bool


KINDS: Final[dict[str, type[PeerCall]]] = {
    "write-marker": WriteMarker,
    "take-part": TakePart,
    "append": Append,
    "read-records": ReadRecords,
    "describe-partitions": DescribePartitions,
    "commit-offset": CommitOffset,
    "find-offset": FindOffset,
    "keep-events": KeepEvents,
    "list-groups": ListGroups,
    "list-transactions": ListTransactions,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_encoder: Final = msgspec.msgpack.Encoder()

R = TypeVar("R", bound=PeerCall)


def encode(message: PeerCall) -> bytes:
    return _encoder.encode(message)


def decode(kind: type[R], body: bytes) -> R:
    try:
        found: R = msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"{kind.__name__} of another broker: {error}") from error
    return found


def start(peers: Peers, broker: str, call: PeerCall) -> Awaitable[bytes]:
    """Make the call now; its answer comes later."""
    return peers.call(broker, _NAMES[type(call)], encode(call))


async def ask(peers: Peers, broker: str, call: PeerCall, answer: type[R]) -> R:
    return decode(answer, await start(peers, broker, call))


def call_of(kind: str, body: bytes) -> Any:  # Any: one of `KINDS`; whoever takes it looks which
    known = KINDS.get(kind)
    if known is None:
        raise MalformedRequest(f"another broker asks for {kind!r}, which this version does not know")
    return decode(known, body)
