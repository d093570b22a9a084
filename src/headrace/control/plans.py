"""The transactions that change topics and partitions: decided here from what is known of them, carried out elsewhere.

Every transaction compares what it was decided on, and in its other branch reads the same keys again, so that a
driver that lost a race can learn what is true and decide anew. Those of a running broker also carry its `Fence`:
an older incarnation of the same broker, still alive somewhere, can no longer write. Pure; no I/O, no clock.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import (
    Compare,
    Delete,
    KeyValue,
    LeaseId,
    Op,
    Put,
    Read,
    Txn,
    TxnLimits,
    absent,
    only,
    size_of,
    unchanged,
)
from headrace.control.topics import ClusterTopics, PartitionEntry
from headrace.errors import AlreadyExists, Invalid, NotLeader, StaleEpoch
from headrace.ids import BrokerEpoch, LeaderEpoch, Offset, TopicId
from headrace.limits import LEADER_EPOCH_MAX, PARTITIONS_PER_TOPIC_MAX

EPOCH_STARTS_KEPT: Final = 64
"""Newest first to be needed; the whole list is in the partition's own checkpoint."""

PartitionName = tuple[str, int]


class Fence(msgspec.Struct, frozen=True, gc=False):
    """This incarnation of a broker: its transactions hold only while it is the newest."""

    broker_id: str
    broker_epoch: BrokerEpoch
    revision: int

    def compare(self) -> Compare:
        return unchanged(keys.broker_identity(self.broker_id), self.revision)


class Step(msgspec.Struct, frozen=True, gc=False):
    """Compares and writes that belong in one transaction, whatever else is in it."""

    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]


class BrokerNumbers(msgspec.Struct, frozen=True, gc=False):
    """What a registration would give this broker, and the transaction that makes it so."""

    numeric_id: int
    broker_epoch: int
    txn: Txn


def register_broker(
    broker_id: str,
    endpoint: pb.BrokerRegistration,
    *,
    identity: KeyValue | None,
    counter: KeyValue | None,
    lease: LeaseId,
    now_ms: int,
) -> BrokerNumbers:
    """The next epoch of a known broker, or the next free number for a new one. Numbers begin at 1."""
    path = keys.broker_identity(broker_id)
    compares = [unchanged(path, _revision(identity))]
    ops: list[Op] = []
    if identity is None:
        numeric_id = 1 if counter is None else values.decode(pb.Counter, counter.value).next
        known = pb.BrokerIdentity(numeric_id=numeric_id, broker_epoch=1)
        compares.append(unchanged(keys.NEXT_BROKER_NUMBER, _revision(counter)))
        ops.append(Put(keys.NEXT_BROKER_NUMBER, values.encode(pb.Counter(next=numeric_id + 1))))
    else:
        known = values.decode(pb.BrokerIdentity, identity.value)
        known.broker_epoch += 1
    registration = pb.BrokerRegistration()
    registration.CopyFrom(endpoint)
    registration.numeric_id = known.numeric_id
    registration.broker_epoch = known.broker_epoch
    registration.registered_ms = now_ms
    ops.append(Put(path, values.encode(known)))
    ops.append(Put(keys.broker(broker_id), values.encode(registration), lease))
    return BrokerNumbers(known.numeric_id, known.broker_epoch, _compared(tuple(compares), tuple(ops)))


def create_topic(
    topics: ClusterTopics,
    name: str,
    topic_id: TopicId,
    *,
    leaders: list[str],
    overrides: Mapping[str, str],
    created_ms: int,
    limits: TxnLimits,
    guards: tuple[Compare, ...] = (),
) -> list[Txn]:
    """Partition `i` starts under `leaders[i]` at epoch 0. The config is what makes the topic exist: it comes last."""
    if topics.find(name) is not None:
        raise AlreadyExists(f"topic {name!r} exists already")
    _check_partition_count(len(leaders))
    config = values.topic_config(topic_id, partitions=len(leaders), overrides=overrides, created_ms=created_ms)
    path = keys.topic_config(name)
    steps = [Step((), (_first_leader(name, index, leader),)) for index, leader in enumerate(leaders)]
    steps.append(Step((), (Put(path, values.encode(config)),)))
    return pack(steps, limits, guards=(absent(path), *guards))


def add_partitions(topics: ClusterTopics, name: str, *, leaders: list[str], limits: TxnLimits) -> list[Txn]:
    """Add `len(leaders)` partitions behind those there are."""
    topic = topics.get(name)
    first = len(topic.partitions)
    _check_partition_count(first + len(leaders))
    if not leaders:
        raise Invalid(f"topic {name!r} has {first} partitions already")
    config = values.topic_config(
        topic.id,
        partitions=first + len(leaders),
        overrides=topic.overrides,
        created_ms=topic.created_ms,
    )
    path = keys.topic_config(name)
    steps = [Step((), (_first_leader(name, index, leader),)) for index, leader in enumerate(leaders, first)]
    steps.append(Step((), (Put(path, values.encode(config)),)))
    return pack(steps, limits, guards=(unchanged(path, topic.revision),))


def set_config(
    topics: ClusterTopics, name: str, overrides: Mapping[str, str], *, guards: tuple[Compare, ...] = ()
) -> Txn:
    """Replace the whole set of overrides."""
    topic = topics.get(name)
    config = values.topic_config(
        topic.id, partitions=len(topic.partitions), overrides=overrides, created_ms=topic.created_ms
    )
    path = keys.topic_config(name)
    return _compared((unchanged(path, topic.revision), *guards), (Put(path, values.encode(config)),))


def delete_topic(topics: ClusterTopics, name: str, *, deleted_ms: int) -> Txn:
    """All keys of the topic go at once; what is left says which id the tier may collect."""
    topic = topics.get(name)
    grave = pb.DeletedTopic(topic_id=topic.id, name=name, partitions=len(topic.partitions), deleted_ms=deleted_ms)
    ops = (Delete(keys.topic(name)), Put(keys.deleted_topic(topic.id), values.encode(grave)))
    return _compared((unchanged(keys.topic_config(name), topic.revision),), ops)


def raise_leader_epochs(
    topics: ClusterTopics,
    fence: Fence,
    *,
    starts: Mapping[PartitionName, int],
    limits: TxnLimits,
) -> list[Txn]:
    """The next leader epoch for every partition this broker leads; `starts` where the first offset is known."""
    steps = []
    for name, index in topics.led_by(fence.broker_id):
        entry = topics.partition(name, index)
        path = keys.leader(name, index)
        leader = next_leader(entry, fence.broker_id, start=starts.get((name, index)))
        steps.append(Step((unchanged(path, entry.leader_revision),), (Put(path, values.encode(leader)),)))
    return pack(steps, limits, guards=(fence.compare(),))


def move_leaders(
    topics: ClusterTopics, moves: Mapping[PartitionName, str], *, guards: tuple[Compare, ...], limits: TxnLimits
) -> list[Txn]:
    """Give each partition its new leader under the next epoch. Where that epoch starts, its leader says when it opens."""
    steps = []
    for (name, index), broker_id in moves.items():
        entry = topics.partition(name, index)
        path = keys.leader(name, index)
        leader = next_leader(entry, broker_id, start=None)
        steps.append(Step((unchanged(path, entry.leader_revision),), (Put(path, values.encode(leader)),)))
    return pack(steps, limits, guards=guards)


def open_partitions(
    topics: ClusterTopics, fence: Fence, starts: Mapping[PartitionName, int], *, limits: TxnLimits
) -> list[Txn]:
    """Note where the epoch of each partition begins, which this broker has been given: before its first append in it."""
    steps = []
    for (name, index), start in starts.items():
        entry = led(topics, fence, name, index)
        path = keys.leader(name, index)
        earlier = tuple(each for each in entry.epoch_starts if each[0] < entry.leader_epoch)
        leader = leader_of(entry, fence.broker_id, entry.leader_epoch, (*earlier, (entry.leader_epoch, Offset(start))))
        steps.append(Step((unchanged(path, entry.leader_revision),), (Put(path, values.encode(leader)),)))
    return pack(steps, limits, guards=(fence.compare(),))


def raise_ceilings(
    topics: ClusterTopics, fence: Fence, ceilings: Mapping[PartitionName, int], *, limits: TxnLimits
) -> list[Txn]:
    """Let offsets below each ceiling be assigned. One that is high enough already needs nothing."""
    return _raise(topics, fence, ceilings, keys.ceiling, lambda entry: (entry.ceiling, entry.ceiling_revision), limits)


def raise_log_starts(
    topics: ClusterTopics, fence: Fence, log_starts: Mapping[PartitionName, int], *, limits: TxnLimits
) -> list[Txn]:
    """Move log starts forward. One that is there already, or behind, needs nothing."""
    return _raise(
        topics, fence, log_starts, keys.log_start, lambda entry: (entry.log_start, entry.log_start_revision), limits
    )


def raise_wal_ends(
    topics: ClusterTopics, fence: Fence, wal_ends: Mapping[PartitionName, int], *, limits: TxnLimits
) -> list[Txn]:
    """Let records below each of these be read as soon as the WAL has them. One that is there already needs nothing."""
    return _raise(topics, fence, wal_ends, keys.wal_end, lambda entry: (entry.wal_end, entry.wal_end_revision), limits)


def _raise(
    topics: ClusterTopics,
    fence: Fence,
    offsets: Mapping[PartitionName, int],
    path_of: Callable[[str, int], str],
    known: Callable[[PartitionEntry], tuple[int, int]],
    limits: TxnLimits,
) -> list[Txn]:
    """`known` gives the offset a partition has, and the revision it came with."""
    steps = []
    for (name, index), offset in offsets.items():
        entry = led(topics, fence, name, index)
        known_offset, revision = known(entry)
        if offset > known_offset:
            path = path_of(name, index)
            compares = _still_leader(name, index, entry), unchanged(path, revision)
            steps.append(Step(compares, (_put_offset(path, offset),)))
    return pack(steps, limits, guards=(fence.compare(),))


def pack(steps: Iterable[Step], limits: TxnLimits, *, guards: tuple[Compare, ...]) -> list[Txn]:
    """As few transactions as hold the steps in their order, each under the guards."""
    txns: list[Txn] = []
    compares: list[Compare] = []
    ops: list[Op] = []
    size = reserved = sum(map(_size_compared, guards))
    for step in steps:
        step_size = sum(map(_size_compared, step.compares)) + sum(map(size_of, step.ops))
        is_full = (
            # The other branch reads each compared key, so compares bound it as well.
            len(guards) + len(compares) + len(step.compares) > limits.ops_max
            or len(ops) + len(step.ops) > limits.ops_max
            or size + step_size > limits.bytes_max
        )
        if ops and is_full:
            txns.append(_compared((*guards, *compares), tuple(ops)))
            compares, ops, size = [], [], reserved
        compares.extend(step.compares)
        ops.extend(step.ops)
        size += step_size
    if ops:
        txns.append(_compared((*guards, *compares), tuple(ops)))
    return txns


def _size_compared(compare: Compare) -> int:
    """With that of reading the key in the other branch."""
    return size_of(compare) + size_of(Read(only(compare.key)))


def _compared(compares: tuple[Compare, ...], ops: tuple[Op, ...]) -> Txn:
    return Txn(compares, ops, tuple(Read(only(key)) for key in dict.fromkeys(c.key for c in compares)))


def _revision(item: KeyValue | None) -> int:
    return 0 if item is None else item.mod_revision


def _check_partition_count(count: int) -> None:
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        raise Invalid(f"{count} partitions, must be 1 to {PARTITIONS_PER_TOPIC_MAX}")


def _first_leader(topic: str, index: int, broker_id: str) -> Put:
    leader = pb.PartitionLeader(broker_id=broker_id, leader_epoch=0, replicas=[broker_id], isr=[broker_id])
    leader.epoch_starts.add(leader_epoch=0, start_offset=0)
    return Put(keys.leader(topic, index), values.encode(leader))


def next_leader(entry: PartitionEntry, broker_id: str, *, start: int | None) -> pb.PartitionLeader:
    epoch = LeaderEpoch(entry.leader_epoch + 1)
    if epoch > LEADER_EPOCH_MAX:
        raise StaleEpoch(f"leader epoch {entry.leader_epoch} is the last there is")
    starts = entry.epoch_starts if start is None else (*entry.epoch_starts, (epoch, Offset(start)))
    return leader_of(entry, broker_id, epoch, starts)


def leader_of(
    entry: PartitionEntry, broker_id: str, epoch: LeaderEpoch, starts: tuple[tuple[LeaderEpoch, Offset], ...]
) -> pb.PartitionLeader:
    leader = pb.PartitionLeader(
        broker_id=broker_id,
        leader_epoch=epoch,
        replicas=_with_leader(entry.replicas, entry.leader, broker_id),
        isr=_with_leader(entry.isr, entry.leader, broker_id),
        ring_id=entry.ring_id,
        ring_start=entry.ring_start,
    )
    for known_epoch, offset in starts[-EPOCH_STARTS_KEPT:]:
        leader.epoch_starts.add(leader_epoch=known_epoch, start_offset=offset)
    return leader


def _with_leader(brokers: tuple[str, ...], former: str, leader: str) -> list[str]:
    """A leader that is none of the replicas takes its predecessor's place among them."""
    if leader in brokers:
        return list(brokers)
    return [leader if each == former else each for each in brokers]


def led(topics: ClusterTopics, fence: Fence, name: str, index: int) -> PartitionEntry:
    entry = topics.partition(name, index)
    if entry.leader != fence.broker_id:
        raise NotLeader(f"{name}-{index} is led by {entry.leader or 'nobody'}, not {fence.broker_id}")
    return entry


def _still_leader(name: str, index: int, entry: PartitionEntry) -> Compare:
    return unchanged(keys.leader(name, index), entry.leader_revision)


def _put_offset(path: str, offset: int) -> Put:
    return Put(path, values.encode(pb.PartitionOffset(offset=offset)))
