"""What the Logjam door's sockets share: where messages go, and what is known of the devices that send them."""

from dataclasses import dataclass, field

from headrace.clock import Clock
from headrace.doors.logjam.intake import Intake
from headrace.doors.logjam.live import LivePublisher
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.publisher import Publisher
from headrace.doors.logjam.settings import LogjamSettings
from headrace.wire.logjam.messages import ReplyForm
from headrace.wire.logjam.sequence import GapDetector


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
    gaps: GapDetector = field(default_factory=GapDetector)
