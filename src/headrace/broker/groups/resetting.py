"""Moving the committed offsets of a group: first a plan that people can look at, then the plan carried out.

A plan changes nothing. Carrying it out is a commit like any other, by somebody outside of the group: it is refused while the
group has members, for they would commit over it.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer, Groups
from headrace.broker.offset_records import CommittedOffset
from headrace.broker.offsets import Offsets, Place
from headrace.broker.slices import gently
from headrace.broker.topics import PartitionLog, Topics
from headrace.errors import Conflict, Invalid, NotEmpty, NotLeader


class Target(Enum):
    """Where a reset moves to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a reset."""

    topic: str
    partition: int
    committed: int | None
    offset: int
    """Where it goes: within what the partition has."""


async def plan_reset(
    topics: Topics, offsets: Offsets, group: str, *, names: Sequence[str], target: Target, value: int
) -> list[Move]:
    """`names` are topics; all that the group has committed unless given."""
    committed = offsets.all_of(group)
    wanted = list(names) or sorted({topic for topic, _ in committed if topics.find(topic) is not None})
    if not wanted:
        raise Invalid(f"group {group!r} has committed nothing yet; name the topics")
    moves = []
    async for partition in gently([each for name in wanted for each in topics.get(name).partitions]):
        if partition.removed:
            raise NotLeader(
                f"where {partition.topic_name}-{partition.index} begins and ends is known to its leader; "
                "`headrace group reset` asks every leader"
            )
        place: Place = (partition.topic_name, partition.index)
        known = committed.get(place)
        offset = await _target_offset(partition, None if known is None else known.offset, target, value)
        moves.append(
            Move(
                topic=place[0],
                partition=place[1],
                committed=None if known is None else known.offset,
                offset=min(max(offset, partition.log_start), partition.high_watermark),
            )
        )
    return moves


async def _target_offset(partition: PartitionLog, committed: int | None, target: Target, value: int) -> int:
    match target:
        case Target.EARLIEST:
            return partition.log_start
        case Target.LATEST:
            return partition.high_watermark
        case Target.OFFSET:
            return value
        case Target.SHIFT:
            return (partition.log_start if committed is None else committed) + value
        case Target.TIME:
            found = await partition.find_time(value)
            # No record as late as that: everything before it has been read.
            return partition.high_watermark if found is None else found[0]


async def apply_reset(groups: Groups, group: str, moves: Sequence[Move]) -> None:
    offsets = {(move.topic, move.partition): CommittedOffset(offset=move.offset) for move in moves}
    error = await groups.commit(group, offsets, Committer())
    if error is GroupError.UNKNOWN_MEMBER_ID:
        raise NotEmpty(f"group {group!r} has members: stop them first")
    if error is not GroupError.NONE:
        raise Conflict(f"group {group!r}: {error.name}")
