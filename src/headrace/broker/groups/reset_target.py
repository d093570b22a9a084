"""Where a reset moves the committed offset of a partition: one rule for the console, the API and the command line."""

from enum import Enum

import msgspec


class Target(Enum):
    """Where a reset moves to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a reset."""

    topic: str
    partition: int
    committed: int | None
    offset: int
    """Where it goes: within what the partition has."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known of a partition."""

    start: int
    end: int
    committed: int | None
    at_time: int | None = None
    """For `Target.TIME`: the first offset at or after that time; None if no record is as late as that."""


def target_offset(target: Target, value: int, extent: Extent) -> int:
    """Never outside of what the partition has."""
    match target:
        case Target.EARLIEST:
            offset = extent.start
        case Target.LATEST:
            offset = extent.end
        case Target.OFFSET:
            offset = value
        case Target.SHIFT:
            offset = (extent.start if extent.committed is None else extent.committed) + value
        case Target.TIME:
            # No record as late as that: everything before it has been read.
            offset = extent.end if extent.at_time is None else extent.at_time
    return min(max(offset, extent.start), extent.end)
