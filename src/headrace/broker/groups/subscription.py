"""Which topics the members of a group read right now."""

from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.errors import MalformedRequest
from headrace.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.kafka.versioned import BODY_AT, read_version


def subscribed_topics(group: ClassicGroup | ConsumerGroup) -> set[str]:
    if isinstance(group, ConsumerGroup):
        return {name for member in group.members.values() for name in group.topics_of(member)}
    if group.protocol_type != "consumer":
        return set()
    topics: set[str] = set()
    for member in group.members.values():
        for protocol in member.protocols:
            topics |= _topics_in(protocol.metadata)
    return topics


def _topics_in(metadata: bytes) -> set[str]:
    """Members may put anything here; what is no subscription subscribes to nothing."""
    try:
        version = min(read_version(metadata), ConsumerProtocolSubscription.VERSIONS[1])
        return set(ConsumerProtocolSubscription.decode(metadata, version, BODY_AT).topics)
    except MalformedRequest:
        return set()
