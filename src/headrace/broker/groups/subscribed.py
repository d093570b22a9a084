"""Which topics the members of a group read right now."""

from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.embedded import CONSUMER_PROTOCOL_TYPE, read_subscription
from headrace.errors import MalformedRequest


def subscribed_topics(group: ClassicGroup | ConsumerGroup) -> set[str]:
    if isinstance(group, ConsumerGroup):
        return {name for member in group.members.values() for name in group.topics_of(member)}
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return set()
    topics: set[str] = set()
    for member in group.members.values():
        for protocol in member.protocols:
            topics |= _topics_in(protocol.metadata)
    return topics


def _topics_in(metadata: bytes) -> frozenset[str]:
    """What is no subscription subscribes to nothing."""
    try:
        return read_subscription(metadata).topics
    except MalformedRequest:
        return frozenset()
