"""Leader epochs: where each began in a partition. A consumer that knows one can see whether its log was cut behind it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


def end_of_earlier(starts: Sequence[EpochStart], epoch: int, *, readable_end: int) -> EpochStart:
    """The newest of `starts` not above `epoch`, and where it ends: before the first that is known to be later.

    One of which nothing is known ends there too. Offsets are never given out twice, so no position is cut off by an end
    that is too high; one that is too low sends its reader back.
    """
    known = [start.epoch for start in starts if start.epoch <= epoch]
    later = [start.start_offset for start in starts if start.epoch > epoch]
    return EpochStart(known[-1] if known else epoch, later[0] if later else readable_end)


def epoch_at(starts: Sequence[EpochStart], offset: int) -> int:
    """The epoch in which the record at `offset` was written; `UNKNOWN` below all `starts`."""
    return next((start.epoch for start in reversed(starts) if start.start_offset <= offset), UNKNOWN)
