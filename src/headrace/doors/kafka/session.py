"""One client connection: who it says it is, which listener it came through, and what it has open."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.broker.access.service import Guard
from headrace.broker.access.words import ANONYMOUS
from headrace.broker.produce import Verdict
from headrace.broker.services import Broker
from headrace.broker.topics import Topic
from headrace.broker.transactions.events import TopicPartition, TransactionError
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.kafka.fetch_sessions import FetchSessions
from headrace.doors.kafka.login import Login, Strangers
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.listening import Address
from headrace.doors.tasks import Tasks
from headrace.wire.kafka.metadata import TopicRows

if TYPE_CHECKING:
    from headrace.doors.kafka._produce import Kernel


@dataclass(slots=True)
class Door:
    """What all connections of this door share."""

    broker: Broker
    settings: KafkaSettings
    fetch_sessions: FetchSessions
    topic_rows: TopicRows
    tasks: Tasks
    common: "Kernel | None" = None
    """Serves requests of the most common kind; None where it was not compiled."""
    strangers: Strangers = field(default_factory=Strangers)
    refused_logins_total: int = 0


@dataclass(slots=True)
class Session:
    """Made with the connection, gone with it."""

    door: Door
    peer: str
    client_id: str | None = None
    advertised: Address = ("", 0)
    """Where this client is told to come back to, by the listener it came through."""
    listener: str = ""
    """The name of that listener."""
    peers: ConnectionSet | None = None
    """Its connection and the others of the door; None where there is no connection."""
    verdicts: Mapping[bytes, Verdict] | None = None
    """On batches that were looked into beside the loop, for the frame that waits for it."""
    login: Login | None = None
    """How this client proves who it is; None where nobody is asked."""
    on_login: Callable[[], None] | None = None
    """Told when they have proved it."""
    on_refused: Callable[[], None] | None = None
    """Told when they have not: the connection ends with the answer."""
    additions: Mapping[TopicPartition, TransactionError] | None = None
    """Partitions that could not be added to a transaction, for the frame that waited for it; None before anybody tried."""
    granted: dict[str | bytes, Topic] = field(default_factory=dict)
    """Topics that this client was allowed to write to, for the fast path. Emptied when anything changes that an answer depends
    on: what is in it holds."""
    fetch_bytes_max: int | None = None
    """The most that a quota lets this client read at once; None where there is none."""
    broker: Broker = field(init=False)
    settings: KafkaSettings = field(init=False)
    guard: Guard = field(init=False)
    """Asked before anything is done for this client."""

    def __post_init__(self) -> None:
        self.broker = self.door.broker
        self.settings = self.door.settings
        self.guard = self.broker.access.guard(ANONYMOUS, "")

    def grant(self, topic: Topic) -> None:
        """The fast path need not ask about this topic any more, if it may serve it at all."""
        if self.broker.topics.open_to_clients.get(topic.name) is topic:
            self.granted[topic.name] = self.granted[topic.id] = topic
