"""The transactions that say in which WAL the records of a partition are: of `wal` topics in a cluster. Pure, as `control/plans.py`.

A leader's entry names the ring that has what object storage has not, and from which address on. It is written before the first record
goes there, and it is emptied only when object storage has everything. Whoever leads a partition and finds another ring in its entry does not
have its records: they are taken over from that ring, or they are lost.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Put, Txn, TxnLimits, unchanged
from headrace.control.plans import Fence, PartitionName, Step, leader_of, led, next_leader, pack
from headrace.control.topics import LOST_RING, ClusterTopics, PartitionEntry
from headrace.control.values import DURABILITY
from headrace.errors import NotLeader
from headrace.ids import Offset

WAL: Final = "wal"


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a ring has the records of a partition, and where its epoch begins."""

    epoch: int
    """In which this was found out; under another one it is not true any more."""
    start: int
    ring_id: bytes
    ring_start: int


def open_in_ring(
    topics: ClusterTopics, fence: Fence, opened: Mapping[PartitionName, Place], *, limits: TxnLimits
) -> list[Txn]:
    """Before the first append: where the epoch begins, and which ring has the records from now on. Raises `NotLeader`."""
    steps = []
    for (name, index), place in opened.items():
        entry = led(topics, fence, name, index)
        if entry.leader_epoch != place.epoch:
            raise NotLeader(f"{name}-{index} is led in epoch {entry.leader_epoch}, not {place.epoch}")
        earlier = tuple(each for each in entry.epoch_starts if each[0] < entry.leader_epoch)
        leader = leader_of(
            entry, fence.broker_id, entry.leader_epoch, (*earlier, (entry.leader_epoch, Offset(place.start)))
        )
        leader.ring_id, leader.ring_start = place.ring_id, place.ring_start
        steps.append(_step(name, index, entry, leader))
    return pack(steps, limits, guards=(fence.compare(),))


def leave_ring(
    topics: ClusterTopics, fence: Fence, epochs: Mapping[PartitionName, int], *, limits: TxnLimits
) -> list[Txn]:
    """Object storage has everything of these, and their leader appends no more: anybody may lead them."""
    steps = []
    for (name, index), epoch in epochs.items():
        entry = led(topics, fence, name, index)
        if entry.leader_epoch != epoch:
            raise NotLeader(f"{name}-{index} is led in epoch {entry.leader_epoch}, not {epoch}")
        leader = leader_of(entry, entry.leader, entry.leader_epoch, entry.epoch_starts)
        leader.ring_id, leader.ring_start = b"", 0
        steps.append(_step(name, index, entry, leader))
    return pack(steps, limits, guards=(fence.compare(),))


def take_over(
    topics: ClusterTopics,
    fence: Fence,
    taken: Mapping[PartitionName, Place],
    *,
    owner: str,
    former_ring: bytes,
    guard: Compare,
    limits: TxnLimits,
) -> list[Txn]:
    """This broker has in its ring what the owner's had, and leads from now on. What is not in that ring any more is left out."""
    steps = []
    for (name, index), place in taken.items():
        topic = topics.find(name)
        entry = topic.partitions[index] if topic is not None and index < len(topic.partitions) else None
        if entry is None or (entry.leader, entry.ring_id) != (owner, former_ring):
            continue
        leader = next_leader(entry, fence.broker_id, start=place.start)
        leader.ring_id, leader.ring_start = place.ring_id, place.ring_start
        steps.append(_step(name, index, entry, leader))
    return pack(steps, limits, guards=(fence.compare(), guard))


def give_up(topics: ClusterTopics, owner: str, *, guards: tuple[Compare, ...], limits: TxnLimits) -> list[Txn]:
    """What only the WAL of this broker has is lost: its partitions go on without."""
    steps = []
    for name, index in topics.led_by(owner):
        entry = topics.partition(name, index)
        if is_in_ring(entry):
            leader = next_leader(entry, owner, start=None)
            leader.ring_id, leader.ring_start = LOST_RING, 0
            steps.append(_step(name, index, entry, leader))
    return pack(steps, limits, guards=guards)


def is_in_ring(entry: PartitionEntry) -> bool:
    """Whether some records of it may be in a WAL and nowhere else."""
    return entry.ring_id not in (b"", LOST_RING)


def is_on_wal(overrides: Mapping[str, str]) -> bool:
    """Whether records of this topic are acknowledged once the leader's WAL has them. Of a topic in a cluster."""
    return overrides.get(DURABILITY) == WAL


def rings_of(topics: ClusterTopics, broker_id: str) -> set[bytes]:
    """The rings that have records of partitions which this broker leads."""
    found = (topics.partition(name, index) for name, index in topics.led_by(broker_id))
    return {entry.ring_id for entry in found if is_in_ring(entry)}


def _step(name: str, index: int, entry: PartitionEntry, leader: pb.PartitionLeader) -> Step:
    path = keys.leader(name, index)
    return Step((unchanged(path, entry.leader_revision),), (Put(path, values.encode(leader)),))
