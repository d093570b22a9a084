"""Consumer groups: list, describe with lag in records and in time, reset with a preview, delete."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.elsewhere import OtherBroker, require_group_here, shown, with_other_groups
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import Done, PartitionIndex, TopicName
from headrace.admin.rights import Operation, Resource
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.member import Member as ClassicMember
from headrace.broker.groups.consumer.member import Member as ConsumerMember
from headrace.broker.groups.embedded import read_assignment
from headrace.broker.groups.lag import LagPoint
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.reset_target import Move, Target
from headrace.broker.groups.resetting import apply_reset, plan_reset
from headrace.broker.groups.service import GroupListing
from headrace.broker.groups.standings import NOWHERE, Standing
from headrace.broker.offsets import Place
from headrace.broker.peers.calls import GroupFacts
from headrace.broker.peers.listings import Gathered, groups_of
from headrace.broker.topics import PartitionLog
from headrace.errors import Conflict, GroupNotFound, Invalid, MalformedRequest, NotEmpty

Listed: TypeAlias = GroupListing | GroupFacts
"""A group of this broker, or of another one."""
GroupName = Annotated[str, Meta(min_length=1, max_length=4096)]

_TREND_MS: Final = 10 * 60 * 1000
_TIMED_AT_ONCE: Final = 8
_TIMED_PARTITIONS_MAX: Final = 200
"""Partitions of one answer whose lag is also told in time: each may cost a read of the bucket."""


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    kind: str
    """`classic` or `consumer` (KIP-848)."""
    state: str
    members: int
    topics: int
    lag: int
    """Records between what is committed and the end, over all partitions."""
    lag_change: int | None = None
    """Over the last ten minutes; None where nobody looked ten minutes ago, and of a group that another broker looks after."""


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    partitions: int


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    """None when the partition is gone, or another broker leads it."""
    lag: int | None
    lag_ms: int | None
    """Age of the first record that is not committed; None when it was not looked up."""
    committed_ms: int | None
    member_id: str | None
    leader: str | None = None
    """The broker that leads the partition, where it is another one: its end, and so the lag, is known there."""


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    kind: str
    state: str
    protocol: str
    members: list[MemberRow]
    partitions: list[GroupPartition]
    lag: int
    lag_ms: int | None
    """The oldest of its partitions."""
    trend: list[LagPoint] = []
    """Its lag over the last three hours, a sample a minute since the node started."""


class ListGroups(PageRequest, frozen=True):
    pass


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[GroupRow]
    next_page_token: str = ""
    total: int
    other_brokers: list[OtherBroker] = []
    """Brokers that look after groups which are not in this list: they did not answer in time, or have too many."""


class NamedGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName
    dry_run: bool = False


class ResetOffset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName
    target: Target
    value: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0
    """The offset, the time in milliseconds, or how far to shift, as `target` says."""
    topics: Annotated[list[TopicName], Meta(max_length=1000)] = []
    """All that the group has committed unless given."""
    dry_run: bool = False
    """Show where every partition would go."""


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    moves: list[Move]
    is_dry_run: bool = False


class DeleteOffset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName
    topic: TopicName
    partition: PartitionIndex
    dry_run: bool = False


async def list_groups(request: ListGroups, call: Call) -> GroupList:
    """Of all brokers. One that does not answer in time is among `other_brokers`, and its groups are not in the list."""
    listed = await _listed(call)
    standings = await call.parts.standings.all(call.turns)
    page = await page_of(
        listed.rows,
        request,
        turns=call.turns,
        name=_name,
        orders={
            "state": lambda each: each.state,
            "kind": lambda each: each.kind,
            "members": lambda each: _member_count(each, call),
            "lag": lambda each: _lag(each, standings),
        },
    )
    rows = [_row(each, standings, call) async for each in call.turns.over(page.items)]
    return GroupList(
        groups=rows,
        next_page_token=page.next_token,
        total=page.total,
        other_brokers=shown(listed.left_out, call),
    )


async def _listed(call: Call) -> Gathered[Listed]:
    """The groups that this broker looks after, and those of others, as far as the caller may see them."""
    others = with_other_groups(call)
    elsewhere = await groups_of(call.broker.forwarding.peers, others) if others else Gathered[GroupFacts]([], [])
    found: Gathered[Listed] = Gathered([], elsewhere.left_out)
    names = call.broker.groups.names()
    async for name in call.turns.over(names):
        listing = call.broker.groups.listing(name)
        if listing is not None and call.sees(Operation.DESCRIBE, Resource.GROUP, name):
            found.rows.append(listing)
    # One that has just changed hands may be known to both for a moment.
    here = frozenset(names) if elsewhere.rows else frozenset()
    async for facts in call.turns.over(elsewhere.rows):
        if facts.group not in here and call.sees(Operation.DESCRIBE, Resource.GROUP, facts.group):
            found.rows.append(facts)
    return found


async def describe_group(request: NamedGroup, call: Call) -> GroupDetail:
    await require_group_here(request.group, call)
    group = call.broker.groups.find(request.group)
    if group is None:
        raise GroupNotFound(f"no group {request.group!r}")
    owners: dict[Place, str] = {}
    members = []
    known: Mapping[str, ClassicMember | ConsumerMember] = {**group.members}
    async for member_id, member in call.turns.over(known.items()):
        share = _share(member, call)
        owners.update(dict.fromkeys(share, member_id))
        members.append(
            MemberRow(
                member_id=member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.instance_id,
                partitions=len(share),
            )
        )
    partitions = await _partitions(request.group, owners, call)
    lag = 0
    times: list[int] = []
    async for chunk in call.turns.chunks(partitions):
        lag += sum(each.lag or 0 for each in chunk)
        times += (each.lag_ms for each in chunk if each.lag_ms is not None)
    return GroupDetail(
        group=request.group,
        kind="classic" if isinstance(group, ClassicGroup) else "consumer",
        state=group.state.value,
        protocol=(group.protocol_name or "") if isinstance(group, ClassicGroup) else group.assignor,
        members=members,
        partitions=partitions,
        lag=lag,
        lag_ms=max(times, default=None),
        trend=call.parts.lag_trends.of(request.group),
    )


async def reset_offset(request: ResetOffset, call: Call) -> ResetPlan:
    await require_group_here(request.group, call)
    if request.target in (Target.OFFSET, Target.TIME) and request.value < 0:
        raise Invalid(f"value: {request.target.value} cannot be negative")
    for topic in request.topics:
        call.require(Operation.READ, Resource.TOPIC, topic)
    moves = await plan_reset(
        call.broker.topics,
        call.broker.offsets,
        request.group,
        names=request.topics,
        target=request.target,
        value=request.value,
    )
    group = call.broker.groups.find(request.group)
    if group is not None and group.members:
        raise NotEmpty(f"group {request.group!r} has {len(group.members)} members: stop them first")
    call.changed(after=[msgspec.to_builtins(each) for each in moves[:101]])
    if not request.dry_run:
        await apply_reset(call.broker.groups, request.group, moves)
    return ResetPlan(moves=moves, is_dry_run=request.dry_run)


async def delete_group(request: DeleteGroup, call: Call) -> Done:
    await require_group_here(request.group, call)
    group = call.broker.groups.find(request.group)
    if group is None:
        raise GroupNotFound(f"no group {request.group!r}")
    if group.members:
        raise NotEmpty(f"group {request.group!r} has {len(group.members)} members: stop them first")
    call.changed(before=_offsets(request.group, call))
    if not request.dry_run:
        _raise_for(await call.broker.groups.delete(request.group), request.group)
    return Done(message=f"group {request.group} deleted, with its offsets", is_dry_run=request.dry_run)


async def delete_offset(request: DeleteOffset, call: Call) -> Done:
    await require_group_here(request.group, call)
    place = (request.topic, request.partition)
    if place not in call.broker.offsets.all_of(request.group):
        raise GroupNotFound(f"group {request.group!r} has no offset for {request.topic}-{request.partition}")
    call.changed(before=call.broker.offsets.all_of(request.group)[place].offset)
    if not request.dry_run:
        results = await call.broker.groups.delete_offsets(request.group, [place])
        _raise_for(results[place], request.group)
    return Done(
        message=f"group {request.group} has no offset for {request.topic}-{request.partition} any more",
        is_dry_run=request.dry_run,
    )


def _offsets(group: str, call: Call) -> dict[str, int]:
    """As many as an event shows."""
    found = islice(call.broker.offsets.all_of(group).items(), 101)
    return {f"{topic}-{partition}": each.offset for (topic, partition), each in found}


def _raise_for(error: GroupError, group: str) -> None:
    if error is GroupError.GROUP_ID_NOT_FOUND:
        raise GroupNotFound(f"no group {group!r}")
    if error in (GroupError.NON_EMPTY_GROUP, GroupError.GROUP_SUBSCRIBED_TO_TOPIC):
        raise NotEmpty(f"group {group!r} has members that read this: stop them first")
    if error is not GroupError.NONE:
        raise Conflict(f"group {group!r}: {error.name}")


def _name(listed: Listed) -> str:
    return listed.group if isinstance(listed, GroupFacts) else listed.group_id


def _member_count(listed: Listed, call: Call) -> int:
    if isinstance(listed, GroupFacts):
        return listed.members
    found = call.broker.groups.find(listed.group_id)
    return 0 if found is None else len(found.members)


def _lag(listed: Listed, standings: Mapping[str, Standing]) -> int:
    return listed.lag if isinstance(listed, GroupFacts) else standings.get(listed.group_id, NOWHERE).lag


def _row(listed: Listed, standings: Mapping[str, Standing], call: Call) -> GroupRow:
    lag = _lag(listed, standings)
    before = None
    if isinstance(listed, GroupFacts):
        topics = listed.topics
    else:
        topics = len(standings.get(listed.group_id, NOWHERE).topics)
        before = call.parts.lag_trends.at(listed.group_id, call.broker.clock.now_ms() - _TREND_MS)
    return GroupRow(
        group=_name(listed),
        kind=listed.kind,
        state=listed.state,
        members=_member_count(listed, call),
        topics=topics,
        lag=lag,
        lag_change=None if before is None else lag - before,
    )


def _share(member: ClassicMember | ConsumerMember, call: Call) -> Collection[Place]:
    """What a member reads; of one that speaks another protocol nobody but its group knows."""
    if isinstance(member, ConsumerMember):
        names = call.broker.groups.topic_names()
        return [(names[slot[0]], slot[1]) for slot in member.assigned if slot[0] in names]
    try:
        return list(read_assignment(member.assignment))
    except MalformedRequest:
        return []


async def _partitions(group: str, owners: dict[Place, str], call: Call) -> list[GroupPartition]:
    committed = call.broker.offsets.all_of(group)
    rows: list[GroupPartition] = []
    late: list[tuple[int, PartitionLog]] = []
    places = await _in_order(chain(committed, (each for each in owners if each not in committed)), call)
    async for place in call.turns.over(places):
        known = committed.get(place)
        partition = call.broker.topics.partition(*place) if call.broker.topics.has_partition(*place) else None
        leader = None
        if partition is not None and partition.removed:
            leader, partition = call.broker.topics.get(place[0]).leaders[place[1]] or "nobody", None
        lag = None
        if partition is not None and known is not None:
            lag = max(0, partition.high_watermark - known.offset)
            if lag:
                late.append((len(rows), partition))
        rows.append(
            GroupPartition(
                topic=place[0],
                partition=place[1],
                committed=None if known is None else known.offset,
                end_offset=None if partition is None else partition.high_watermark,
                lag=lag,
                lag_ms=0 if lag == 0 else None,
                committed_ms=None if known is None else known.commit_ms,
                member_id=owners.get(place),
                leader=leader,
            )
        )
    await _add_times(rows, late[:_TIMED_PARTITIONS_MAX], call)
    return rows


async def _add_times(rows: list[GroupPartition], late: list[tuple[int, PartitionLog]], call: Call) -> None:
    now_ms = call.broker.clock.now_ms()

    async def add(place: int, partition: PartitionLog) -> None:
        offset = rows[place].committed
        assert offset is not None, "only what is committed can be late"
        since = await call.parts.record_times.of(partition, offset)
        if since is not None and since >= 0:
            rows[place] = msgspec.structs.replace(rows[place], lag_ms=max(0, now_ms - since))

    waiting = iter(late)

    async def add_next() -> None:
        for place, partition in waiting:
            await add(place, partition)

    # Few begin at once: each does a little work before it waits, and together they would hold the loop.
    await asyncio.gather(*(add_next() for _ in range(_TIMED_AT_ONCE)))


async def _in_order(places: Iterable[Place], call: Call) -> list[Place]:
    """Sorted, topic by topic: sorting all at once would hold the loop."""
    indexes: dict[str, list[int]] = {}
    async for chunk in call.turns.chunks(places):
        for topic, index in chunk:
            indexes.setdefault(topic, []).append(index)
    found: list[Place] = []
    async for topic in call.turns.over(sorted(indexes)):
        async for part in call.turns.chunks(sorted(indexes[topic])):
            found += ((topic, index) for index in part)
    return found
