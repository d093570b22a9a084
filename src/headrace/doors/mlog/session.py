"""What all mlog connections share, and how a request finds its partition."""

from dataclasses import dataclass

from headrace.broker.access.service import Guard
from headrace.broker.services import Broker
from headrace.broker.topics import PartitionLog
from headrace.doors.gathering import Gathering
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.metrics import MlogMetrics
from headrace.doors.mlog.settings import MlogSettings
from headrace.wire.mlog.codes import ErrorCode

CONSUMER_ID_DEFAULT = "default"


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
    """Where clients find this node: the leader of everything, as long as it is alone."""

    @property
    def node_id(self) -> str:
        return self.broker.identity.broker_name

    def partition(self, topic: str) -> PartitionLog:
        """mlog's topics have one partition; of others it sees the first."""
        if not topic:
            raise Refusal(ErrorCode.TOPIC_REQUIRED, "topic is required")
        return self.broker.topics.led_partition(topic, 0)

    def writable_partition(self, topic: str) -> PartitionLog:
        partition = self.partition(topic)
        count = len(self.broker.topics.get(topic).partitions)
        if count > 1:
            raise Refusal(
                ErrorCode.UNKNOWN, f"topic {topic} has {count} partitions; mlog cannot say which one to produce to"
            )
        return partition
