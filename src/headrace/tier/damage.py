"""Which records of the tier are known to be unreadable: noted when somebody meets them, gone when they can be read again.

Each stands on the node's board of problems with topic, offsets and object, and is logged once. Bounded: a bucket that lost
everything is one problem, not a million.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from headrace.errors import DamagedRecords
from headrace.telemetry.logging import get_logger
from headrace.telemetry.problems import Problems
from headrace.tier.metrics import TierMetrics
from headrace.tier.segments import PartitionKey

RANGES_MAX: Final = 100

log = get_logger(__name__)


class DamagedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one partition that cannot be read."""

    place: PartitionKey
    base_offset: int
    end_offset: int
    key: str
    reason: str


class DamagedRanges:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        metrics: TierMetrics,
        problems: Problems,
        topic_name: Callable[[PartitionKey], str] = lambda place: place[0].hex(),
    ) -> None:
        self._metrics = metrics
        self._problems = problems
        self._topic_name = topic_name
        self._ranges: dict[tuple[PartitionKey, int], DamagedRange] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[DamagedRange]:
        return iter(list(self._ranges.values()))

    def note(self, damaged: DamagedRange) -> DamagedRecords:
        """Remember it, and give the error for whoever asked."""
        topic, index = self._topic_name(damaged.place), damaged.place[1]
        sentence = (
            f"{topic}-{index}: offsets {damaged.base_offset} to {damaged.end_offset - 1} cannot be read: {damaged.reason}; "
            f"put the object back, or give them up with `headrace tier skip {topic} {index} {damaged.base_offset}`"
        )
        known = self._ranges.get((damaged.place, damaged.base_offset))
        if known is None and len(self._ranges) < RANGES_MAX:
            log.error("records cannot be read", what=sentence)
            self._ranges[damaged.place, damaged.base_offset] = damaged
            self._problems.raise_problem(_name(damaged), sentence)
            self._metrics.tier_damaged_ranges = len(self._ranges)
        return DamagedRecords(sentence)

    def note_read(self, place: PartitionKey, start: int, end: int) -> None:
        """Offsets from `start` up to `end` were read: what was damaged there is mended."""
        self.forget(lambda each: each.place == place and each.base_offset < end and each.end_offset > start)

    def forget(self, is_over: Callable[[DamagedRange], bool]) -> None:
        for each in self:
            if is_over(each):
                del self._ranges[each.place, each.base_offset]
                self._problems.clear(_name(each))
        self._metrics.tier_damaged_ranges = len(self._ranges)


def _name(damaged: DamagedRange) -> str:
    return f"damaged {damaged.place[0].hex()} {damaged.place[1]} {damaged.base_offset}"
