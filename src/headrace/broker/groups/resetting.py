"""Moving the committed offsets of a group: first a plan that people can look at, then the plan carried out.

A plan changes nothing. Carrying it out is a commit like any other, by somebody outside of the group: it is refused while the
group has members, for they would commit over it.
"""

from collections.abc import Sequence

from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.reset_target import Extent, Move, Target, target_offset
from headrace.broker.groups.service import Committer, Groups
from headrace.broker.offset_records import CommittedOffset
from headrace.broker.offsets import Offsets, Place
from headrace.broker.slices import gently
from headrace.broker.topics import PartitionLog, Topics
from headrace.errors import Conflict, Invalid, NotEmpty, NotLeader


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
        extent = await _extent(partition, committed.get(place), target, value)
        offset = target_offset(target, value, extent)
        moves.append(Move(topic=place[0], partition=place[1], committed=extent.committed, offset=offset))
    return moves


async def _extent(partition: PartitionLog, committed: CommittedOffset | None, target: Target, value: int) -> Extent:
    found = await partition.find_time(value) if target is Target.TIME else None
    return Extent(
        start=partition.log_start,
        end=partition.high_watermark,
        committed=None if committed is None else committed.offset,
        at_time=None if found is None else found[0],
    )


async def apply_reset(groups: Groups, group: str, moves: Sequence[Move]) -> None:
    offsets = {(move.topic, move.partition): CommittedOffset(offset=move.offset) for move in moves}
    error = await groups.commit(group, offsets, Committer())
    if error is GroupError.UNKNOWN_MEMBER_ID:
        raise NotEmpty(f"group {group!r} has members: stop them first")
    if error is not GroupError.NONE:
        raise Conflict(f"group {group!r}: {error.name}")
