"""Who should read what: the assignors that run in the coordinator.

Pure functions from what members want and have to what they should have. Every partition of a subscribed topic goes
to exactly one member that subscribed to it.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

TopicIdPartition: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""
Assignment: TypeAlias = dict[str, frozenset[TopicIdPartition]]
"""Member id to what it should read."""


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    has: frozenset[TopicIdPartition]
    """What it was last meant to have; the uniform assignor moves as little of it as it can."""


def assign_range(subscribers: list[Subscriber], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Per topic, each member a run of neighbouring partitions: topics of equal size line up."""
    shares: dict[str, list[TopicIdPartition]] = {each.member_id: [] for each in subscribers}
    # A static member keeps its place in the row when it comes back under another member id.
    ordered = sorted(subscribers, key=lambda each: (each.instance_id or each.member_id, each.member_id))
    for topic_id, count in partition_counts.items():
        readers = [each for each in ordered if topic_id in each.topics]
        begin = 0
        for index, reader in enumerate(readers):
            end = begin + count // len(readers) + (1 if index < count % len(readers) else 0)
            shares[reader.member_id] += [(topic_id, partition) for partition in range(begin, end)]
            begin = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(subscribers: list[Subscriber], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Even shares with as few moves as possible."""
    shares = _kept(subscribers, partition_counts)
    taken = set().union(*shares.values()) if shares else set()
    readers = {
        topic_id: [each.member_id for each in subscribers if topic_id in each.topics] for topic_id in partition_counts
    }
    free = [
        (topic_id, partition)
        for topic_id, count in partition_counts.items()
        if readers[topic_id]
        for partition in range(count)
        if (topic_id, partition) not in taken
    ]
    # Partitions few can read go first: those that anybody can read even things out afterwards.
    free.sort(key=lambda partition: (len(readers[partition[0]]), partition))
    if len({each.topics for each in subscribers}) <= 1:
        _level(shares, free)
    else:
        for partition in free:
            lightest = min(readers[partition[0]], key=lambda member_id: (len(shares[member_id]), member_id))
            shares[lightest].add(partition)
        _balance(shares, readers)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept(subscribers: list[Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, set[TopicIdPartition]]:
    """What everybody has and may keep; nobody keeps what somebody else was counted for already."""
    shares: dict[str, set[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for each in subscribers:
        share = {
            partition
            for partition in each.has
            if partition[0] in each.topics
            and partition[1] < partition_counts.get(partition[0], 0)
            and partition not in taken
        }
        taken |= share
        shares[each.member_id] = share
    return shares


def _level(shares: dict[str, set[TopicIdPartition]], free: list[TopicIdPartition]) -> None:
    """All members read the same topics: everybody ends within one of everybody else."""
    if not shares:
        return
    total = len(free) + sum(len(share) for share in shares.values())
    low, extra = divmod(total, len(shares))
    # Those who have most claim the larger shares first, so that they give up least.
    quotas: dict[str, int] = {}
    for member_id in sorted(shares, key=lambda each: (-len(shares[each]), each)):
        quotas[member_id] = low + (1 if extra > 0 else 0)
        extra -= 1
    pool = list(free)
    for member_id, share in shares.items():
        surplus = sorted(share)[quotas[member_id] :]
        share.difference_update(surplus)
        pool += surplus
    pool.sort(reverse=True)
    for member_id in sorted(shares):
        while len(shares[member_id]) < quotas[member_id]:
            shares[member_id].add(pool.pop())


def _balance(shares: dict[str, set[TopicIdPartition]], readers: Mapping[bytes, list[str]]) -> None:
    """Members read different topics: move partitions down until no single move helps.

    Every move shrinks the sum of squared loads, so this ends; the bound is for the reader's peace of mind.
    """
    for _ in range(sum(len(share) for share in shares.values()) + 1):
        if not _move_one(shares, readers):
            return


def _move_one(shares: dict[str, set[TopicIdPartition]], readers: Mapping[bytes, list[str]]) -> bool:
    by_load = sorted(shares, key=lambda each: (-len(shares[each]), each))
    for giver in by_load:
        for partition in sorted(shares[giver]):
            taker = min(readers[partition[0]], key=lambda each: (len(shares[each]), each))
            if len(shares[taker]) + 1 < len(shares[giver]):
                shares[giver].remove(partition)
                shares[taker].add(partition)
                return True
    return False


Assignor: TypeAlias = Callable[[list[Subscriber], Mapping[bytes, int]], Assignment]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that clients ask for; the first is the default."""
