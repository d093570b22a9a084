"""Where a broker of several keeps its WAL: in a place of its own for each ring it ever had.

A ring that another broker has taken over is fenced for good, and may still be read by that one. So it stays where it is, and its owner goes on
in the next place: below the same directory, by number. A fence stays there after its ring is gone, so that no number is used twice.
"""

from collections.abc import Iterator
from pathlib import Path

from headrace.disk import Disk
from headrace.errors import Corrupted, Invalid
from headrace.log.checkpoint import NAME as CHECKPOINT_NAME
from headrace.log.settings import LogSettings
from headrace.log.spill.files import PREFIX as SPILL_PREFIX
from headrace.log.wal.file import read_superblock, storage_errors
from headrace.log.wal.paths import WAL_FILE_NAME, wal_paths
from headrace.log.wal.writer import FENCE_NAME


def first_home(settings: LogSettings, data_dir: Path) -> Path:
    """Raises `Invalid` where the WAL is a device, which cannot be left to another while the next ring begins."""
    directory, ring = wal_paths(settings, data_dir)
    if ring.parent != directory:
        raise Invalid(f"wal.path is {ring}: in a cluster of several brokers the WAL is a file, not a device")
    return directory


def homes(first: Path, disk: Disk) -> Iterator[Path]:
    """The places that were fenced, oldest first, and then the one in use."""
    number, home = 1, first
    while disk.exists(home / FENCE_NAME):
        yield home
        number += 1
        home = first / f"ring-{number}"
    yield home


def home_in_use(first: Path, disk: Disk) -> Path:
    *_, last = homes(first, disk)
    return last


def ring_in(home: Path, disk: Disk) -> bytes | None:
    """The id of the ring there; None where there is none, or none that can be read."""
    path = home / WAL_FILE_NAME
    if not disk.exists(path):
        return None
    try:
        return read_superblock(path, disk=disk).ring_id
    except Corrupted:
        return None


def find_ring(first: Path, ring_id: bytes, disk: Disk) -> Path | None:
    """The place that has this ring; None where it is nowhere below, or cannot be read."""
    return next((home for home in homes(first, disk) if ring_in(home, disk) == ring_id), None)


def fence(home: Path, disk: Disk) -> None:
    """Nobody acknowledges anything in this WAL any more once this returns, whatever its owner has queued. Can be repeated."""
    with storage_errors("fence the WAL"):
        path = home / FENCE_NAME
        if not disk.exists(path):
            disk.create(path).close()
        # Also where it was there: whoever made it may have died before it was on disk.
        disk.sync_directory(home)


def clear(home: Path, disk: Disk) -> None:
    """Remove ring, checkpoint and spill; nobody needs them any more. A fence stays, and whatever else may lie there."""
    disk.make_directory(home)
    for name in disk.names(home):
        if name == WAL_FILE_NAME or name.startswith((CHECKPOINT_NAME, SPILL_PREFIX)):
            disk.remove(home / name)
    disk.sync_directory(home)
