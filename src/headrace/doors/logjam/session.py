"""What the Logjam door's sockets share: where messages go, and what is known of the devices that send them."""

from dataclasses import dataclass, field

from headrace.broker.access.service import Guard
from headrace.broker.access.words import Operation, Resource
from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.doors.logjam.intake import Intake
from headrace.doors.logjam.live import LivePublisher
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.publisher import Publisher
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.rights import check_topic
from headrace.wire.logjam.messages import DataMessage, ReplyForm
from headrace.wire.logjam.names import log_topic_name
from headrace.wire.logjam.sequence import GapDetector


@dataclass(slots=True)
class Rights:
    """What somebody may do: with CURVE one agent, known by its key; without it all of them, who are the listener's principal."""

    guard: Guard
    topics: Topics

    def check_write(self, message: DataMessage) -> None:
        """Raises `Denied`, or `TopicNotFound` where the topic is not for them to know of."""
        if self.guard.is_on:
            name = log_topic_name(message.stream)
            if self.topics.find(name) is None:
                check_topic(Operation.CREATE, name, self.guard)
            check_topic(Operation.WRITE, name, self.guard)

    def may_read(self, message: DataMessage) -> bool:
        return not self.guard.is_on or self.guard.sees(Operation.READ, Resource.TOPIC, log_topic_name(message.stream))


@dataclass(slots=True)
class Session:
    settings: LogjamSettings
    clock: Clock
    metrics: LogjamMetrics
    intake: Intake
    publisher: Publisher
    live: LivePublisher
    host: str
    """This machine's name, as agents and subscribers are told."""
    reply_form: ReplyForm
    access: "Rights"
    """Of whoever has sent the message that is being handled."""
    subscribers: "Rights"
    """Of all who subscribe: what is published goes to every one of them, so all are the listener's principal."""
    gaps: GapDetector = field(default_factory=GapDetector)
