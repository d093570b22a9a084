"""A group changes its kind with its members in it (KIP-848's online migration).

Upward when the first member of the new protocol joins a classic group of consumers, downward when the last one leaves
and classic members remain. What a member holds travels along, so that nobody is given a partition which another one
still reads; the generation becomes the epoch and back, so that members are known and may commit meanwhile.

Pure functions of a group: they give the snapshot from which the other kind is restored.
"""

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.member import Member as ClassicMember
from headrace.broker.groups.classic.roster import elect_protocol
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.consumer.member import Member as ConsumerMember
from headrace.broker.groups.consumer.topics import KnownTopics
from headrace.broker.groups.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)


def can_upgrade(group: ClassicGroup) -> bool:
    """Only of consumers do we know what their bytes mean."""
    return group.protocol_type == CONSUMER_PROTOCOL_TYPE


def upgraded(group: ClassicGroup, topics: KnownTopics) -> consumer.GroupSnapshot:
    """Raises `MalformedRequest` where a member's bytes are not what consumers exchange."""
    members: list[consumer.MemberSnapshot] = []
    taken: set[TopicIdPartition] = set()
    for member in group.members.values():
        # A careless leader may have given the same partition to two; one of them will have to let go of it.
        holds = topics.partitions(read_assignment(member.assignment)) - taken
        taken |= holds
        members.append(_upgraded_member(member, holds, group))
    return consumer.GroupSnapshot(
        epoch=group.generation, target_epoch=group.generation, since_ms=group.since_ms, members=tuple(members)
    )


def _upgraded_member(
    member: ClassicMember, holds: frozenset[TopicIdPartition], group: ClassicGroup
) -> consumer.MemberSnapshot:
    subscription, *_ = [read_subscription(each.metadata) for each in member.protocols]
    return consumer.MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topics,
        topic_regex="",
        server_assignor=None,
        epoch=group.generation,
        previous_epoch=group.generation,
        has_left=False,
        assigned=holds,
        revoking=frozenset(),
        target=holds,
        classic=consumer.ClassicTerms(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
    )


def downgraded(group: ConsumerGroup, topics: KnownTopics, *, now_ms: int) -> classic.GroupSnapshot:
    """Of a group whose members all speak the classic protocol."""
    terms = [each.classic for each in group.members.values() if each.classic is not None]
    protocol_name = elect_protocol([each.protocols for each in terms])
    return classic.GroupSnapshot(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol_name=protocol_name,
        leader_id=next(iter(group.members)),
        members=tuple(_downgraded_member(each, protocol_name, topics) for each in group.members.values()),
        since_ms=now_ms,
    )


def _downgraded_member(member: ConsumerMember, protocol_name: str, topics: KnownTopics) -> classic.MemberSnapshot:
    assert member.classic is not None, "a member of the new protocol cannot go on in a classic group"
    metadata = next(each.metadata for each in member.classic.protocols if each.name == protocol_name)
    share = topics.named(member.assigned)
    return classic.MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        subscription=metadata,
        assignment=write_assignment(share, read_subscription(metadata).version),
    )
