"""The names of things. A `Partition` is not an `Offset`, and mypy knows it."""

from typing import NewType
from uuid import UUID

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes, never all zero: a topic that is deleted and created again is another topic."""
Partition = NewType("Partition", int)
Offset = NewType("Offset", int)
"""Place of a record in its partition. Ends are exclusive."""
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ProducerId = NewType("ProducerId", int)

NO_TOPIC_ID = TopicId(bytes(16))


def show_topic_id(topic_id: TopicId) -> str:
    return str(UUID(bytes=bytes(topic_id)))
