"""What all RustLog connections share, and what is known of the groups that use them."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.access.service import Guard
from headrace.broker.access.words import Operation, Resource
from headrace.broker.services import Broker
from headrace.broker.topics import Topic
from headrace.doors.gathering import Gathering
from headrace.doors.rustlog.fitting import record_bytes_max
from headrace.doors.rustlog.metrics import RustLogMetrics
from headrace.doors.rustlog.settings import RustLogSettings

GROUPS_WATCHED_MAX: Final = 10_000
"""Positions remembered for the lag metric; group names come from the network."""

Position = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(slots=True)
class GroupPositions:
    """How far each group has read, as far as its fetches and commits tell. For the lag metric only."""

    _next_offsets: OrderedDict[Position, int] = field(default_factory=OrderedDict)

    def note(self, group: str, topic: str, partition: int, next_offset: int) -> None:
        if not group:
            return
        key = (group, topic, partition)
        self._next_offsets[key] = next_offset
        self._next_offsets.move_to_end(key)
        if len(self._next_offsets) > GROUPS_WATCHED_MAX:
            self._next_offsets.popitem(last=False)

    def all(self) -> list[tuple[Position, int]]:
        return list(self._next_offsets.items())


@dataclass(slots=True)
class Session:
    """The protocol keeps nothing per connection but its state: sessions differ in whom they belong to."""

    broker: Broker
    settings: RustLogSettings
    gathering: Gathering
    metrics: RustLogMetrics
    guard: Guard
    """Asked before anything is done. Each connection has its own."""
    positions: GroupPositions = field(default_factory=GroupPositions)
    record_bytes_max: int = field(init=False)
    """Largest record taken: as configured, and no more than a Fetch can bring back."""
    nanoseconds: Callable[[], int] = time.monotonic_ns
    """For the latency metrics, which are finer than the broker's clock."""

    def visible_topics(self) -> list[Topic]:
        """Those that this client is told of without asking for them by name."""
        return [
            topic
            for topic in self.broker.topics.all()
            if not topic.is_internal and self.guard.sees(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        ]

    def __post_init__(self) -> None:
        self.record_bytes_max = min(self.settings.record_max_bytes, record_bytes_max(self.settings.frame_max_bytes))
