"""Who keeps house in the bucket: one broker looks after what no partition's leader can decide alone."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Keeping:
    """What is kept by one: folded manifests, snapshots, graves of topics, objects that nobody refers to.

    Two that both think so for a moment do no harm: whatever is decided compares what it was decided on.
    """

    is_alone: bool = True
    """Whether this broker leads everything there is."""
    is_keeper: Callable[[], bool] = lambda: True
