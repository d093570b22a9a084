"""What all mlog connections share, and how a request finds its partition."""

from dataclasses import dataclass
from typing import Final

from headrace.broker.access.service import Guard
from headrace.broker.identity import NOBODY
from headrace.broker.services import Broker
from headrace.broker.topics import PartitionLog, Topic
from headrace.doors.gathering import Gathering
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.metrics import MlogMetrics
from headrace.doors.mlog.settings import MlogSettings
from headrace.wire.mlog.codes import ErrorCode

CONSUMER_ID_DEFAULT = "default"
_DOOR: Final = "mlog"


@dataclass(slots=True)
class Session:
    """The protocol keeps nothing per connection: sessions differ in whom they belong to, and the address they came by."""

    broker: Broker
    settings: MlogSettings
    gathering: Gathering
    metrics: MlogMetrics
    guard: Guard
    """Asked before anything is done. Each connection has its own."""
    address: str
    """Where clients of this connection find this node."""

    @property
    def node_id(self) -> str:
        return self.broker.identity.broker_name

    def topic(self, name: str) -> Topic:
        if not name:
            raise Refusal(ErrorCode.TOPIC_REQUIRED, "topic is required")
        return self.broker.topics.get(name)

    def partition(self, topic: str) -> PartitionLog:
        """mlog's topics have one partition; of others it sees the first. Raises `NotLeader` where another node leads it."""
        return self.broker.topics.led_partition(self.topic(topic).name, 0)

    def address_of(self, node_id: str) -> str | None:
        """Where clients find that node; None while it cannot be reached."""
        if node_id == self.node_id:
            return self.address
        identity = self.broker.identity
        return None if identity.number_of(node_id) == NOBODY else identity.address_of(node_id, _DOOR) or None

    def writable_partition(self, topic: str) -> PartitionLog:
        partition = self.partition(topic)
        count = len(self.broker.topics.get(topic).partitions)
        if count > 1:
            raise Refusal(
                ErrorCode.UNKNOWN, f"topic {topic} has {count} partitions; mlog cannot say which one to produce to"
            )
        return partition
