"""Who keeps house in the bucket: one broker looks after what no partition's leader can decide alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_ROWS_PER_S: Final = 5000
"""What an etcd takes from a whole cluster, and has room for others."""
_ROWS_PER_SEGMENT: Final = 2
"""The segment, and where the next one begins."""
_WINDOW_MS_MAX: Final = 250


@dataclass(slots=True)
class Keeping:
    """What is kept by one: folded manifests, snapshots, graves of topics, objects that nobody refers to.

    Two that both think so for a moment do no harm: whatever is decided compares what it was decided on.
    """

    is_alone: bool = True
    """Whether this broker leads everything there is."""
    is_keeper: Callable[[], bool] = lambda: True
    broker_count: Callable[[], int] = lambda: 0
    """Those that commit beside each other; 0 where one is alone."""

    def window_ms(self, segment_count: int) -> int:
        """How far apart windows of so many segments have to begin, so that all brokers together write few enough rows."""
        return min(_WINDOW_MS_MAX, segment_count * _ROWS_PER_SEGMENT * self.broker_count() * 1000 // _ROWS_PER_S)
