"""One client connection: who it says it is, which listener it came through, and what it has open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.broker.services import Broker
from headrace.doors.connection import ConnectionSet
from headrace.doors.kafka.fetch_sessions import FetchSessions
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.listening import Address
from headrace.doors.tasks import Tasks
from headrace.errors import HeadraceError
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


@dataclass(slots=True)
class Session:
    """Made with the connection, gone with it."""

    door: Door
    peer: str
    client_id: str | None = None
    advertised: Address = ("", 0)
    """Where this client is told to come back to, by the listener it came through."""
    peers: ConnectionSet | None = None
    """Its connection and the others of the door; None where there is no connection."""
    verdicts: Mapping[bytes, HeadraceError | None] | None = None
    """On batches that were looked into beside the loop, for the frame that waits for it."""
    broker: Broker = field(init=False)
    settings: KafkaSettings = field(init=False)

    def __post_init__(self) -> None:
        self.broker = self.door.broker
        self.settings = self.door.settings
