"""Whether a ring reaches as far as everything else says it did. Pure.

A ring cannot tell by itself that its end is missing: cut short, or replaced by an older copy, it looks like one that was
written less. Checkpoint, superblock, spill and metastore each saw it at some length, and object storage has records that it
must still have had.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.log.wal.recovery import Quarantine


class Witness(NamedTuple):
    """Somebody who knows that everything below `lsn` was durable."""

    name: str
    lsn: int


def shortfall(head_lsn: int, witnesses: Iterable[Witness], *, sealed_lsn: int = 0) -> Quarantine | None:
    """What is missing of a ring that ends at `head_lsn`; None when nothing is.

    What lies above the end at which another broker has sealed the ring counts for nobody.
    """
    furthest = max(witnesses, key=lambda each: each.lsn, default=Witness("", 0))
    end_lsn = min(furthest.lsn, sealed_lsn) if sealed_lsn else furthest.lsn
    if end_lsn <= head_lsn:
        return None
    return Quarantine(
        head_lsn, end_lsn, [], f"the ring ends at LSN {head_lsn}; {furthest.name} knows it up to {end_lsn}"
    )
