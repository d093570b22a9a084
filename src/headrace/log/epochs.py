"""Leader epochs: where each began in a partition. A consumer that knows one can see whether its log was cut behind it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


def end_of_earlier(starts: Sequence[EpochStart], epoch: int, *, log_start: int, readable_end: int) -> EpochStart | None:
    """The newest of `starts` not above `epoch`, and where it ends. None where nothing is known of it."""
    known = [start for start in starts if start.epoch <= epoch]
    later = [start for start in starts if start.epoch > epoch]
    end = later[0].start_offset if later else readable_end
    if not known:
        return EpochStart(epoch, log_start) if later else None
    return EpochStart(known[-1].epoch, end)


def epoch_at(starts: Sequence[EpochStart], offset: int) -> int:
    """The epoch in which the record at `offset` was written; `UNKNOWN` below all `starts`."""
    return next((start.epoch for start in reversed(starts) if start.start_offset <= offset), UNKNOWN)
