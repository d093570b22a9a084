"""The protocol within the protocol: what classic consumers put into the bytes that their group only carries.

Kafka calls it the consumer embedded protocol: subscriptions in JoinGroup, assignments in SyncGroup. Members may put
anything there; whoever reads it here must be ready for `MalformedRequest`.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from headrace.wire.coordination.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.coordination.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from headrace.wire.coordination.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.coordination.versioned import BODY_AT, encode_versioned, read_version

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

TopicIndex: TypeAlias = tuple[str, int]
"""Topic name and partition."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    topics: frozenset[str]
    owned: frozenset[TopicIndex]
    """What the member still reads. An eager one has let go of everything before it joins."""
    rack_id: str | None


def read_subscription(metadata: bytes) -> Subscription:
    version = _known_version(metadata, ConsumerProtocolSubscription.VERSIONS[1])
    message = ConsumerProtocolSubscription.decode(metadata, version, BODY_AT)
    return Subscription(
        version=version,
        topics=frozenset(message.topics),
        owned=frozenset((each.topic, index) for each in message.owned_partitions for index in each.partitions),
        rack_id=message.rack_id,
    )


def read_assignment(assignment: bytes) -> frozenset[TopicIndex]:
    """No bytes at all are what a member has that was given nothing yet."""
    if not assignment:
        return frozenset()
    version = _known_version(assignment, ConsumerProtocolAssignment.VERSIONS[1])
    message = ConsumerProtocolAssignment.decode(assignment, version, BODY_AT)
    return frozenset((each.topic, index) for each in message.assigned_partitions for index in each.partitions)


def write_assignment(share: Iterable[TopicIndex], version: int) -> bytes:
    """In the version that the member's own subscription has."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(share):
        by_topic.setdefault(topic, []).append(index)
    topics = [AssignedTopic(topic, indexes) for topic, indexes in by_topic.items()]
    return encode_versioned(ConsumerProtocolAssignment(topics), version)


def _known_version(data: bytes, newest: int) -> int:
    """Newer versions only add fields at the end."""
    return min(read_version(data), newest)
