"""A log that stands still never makes Logjam's sockets stand still: messages wait up to a bound, then are dropped."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs
from tests.support.metastores import ManualClock

from headrace.broker.services import Broker
from headrace.doors.logjam.intake import Intake
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.tasks import Tasks
from headrace.doors.turns import Turns
from headrace.wire.logjam.messages import DataMessage
from headrace.wire.logjam.meta import Meta
from headrace.wire.logjam.names import parse_stream


@dataclass
class StalledProduce:
    room_wanted: list[Any] = field(default_factory=list)

    def now_ms(self) -> int:
        return 1_000

    def can_take(self, size: int) -> bool:
        return False

    def is_transformed(self, partition: Any) -> bool:
        return False

    def when_room(self, callback: Any) -> None:
        self.room_wanted.append(callback)


@dataclass
class OneTopic:
    """Every stream has its topic already."""

    partition: Any = field(
        default_factory=lambda: SimpleNamespace(
            removed=False, topic_id=b"", index=0, topic_name="t", policy=SimpleNamespace(message_bytes_max=10_000_000)
        )
    )

    def __post_init__(self) -> None:
        # `partition` must be usable as a dictionary key, which a namespace is not.
        self._topic = SimpleNamespace(partitions=[_Hashable(self.partition)])

    def find(self, name: str) -> Any:
        return self._topic


class _Hashable:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def message(size: int) -> DataMessage:
    body = b'{"x":"' + b"x" * size + b'"}'
    return DataMessage(parse_stream(b"a-b"), b"a-b", b"logs", body, Meta(created_ms=1, sequence=1))


async def test_a_stalled_log_drops_beyond_a_bound_and_says_so() -> None:
    clock = ManualClock()
    broker = cast(Broker, SimpleNamespace(produce=StalledProduce(), topics=OneTopic(), clock=clock, forwarding=None))
    metrics = LogjamMetrics()
    settings = LogjamSettings(waiting_max_bytes=1024 * 1024)
    intake = Intake(broker, settings, metrics, Tasks("logjam"), Turns())
    with capture_logs() as logged:
        for index in range(30):
            intake.take(message(100_000), wants_reply=index % 2 == 0)
            intake.append()
    assert metrics.waiting_bytes <= settings.waiting_max_bytes + 101_000
    assert metrics.dropped_total == 30 - 11
    assert 0 < metrics.accepted_then_failed_total < metrics.dropped_total
    # `telemetry.floods`, which tests do without, writes some of these lines and counts the rest.
    assert {(entry["event"], entry["log_level"]) for entry in logged} == {("logjam message dropped", "warning")}
