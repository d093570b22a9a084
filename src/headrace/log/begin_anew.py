"""A WAL that nobody needs: of a broker whose records all count only once they are in object storage."""

from pathlib import Path

from headrace.disk import Disk
from headrace.errors import Invalid
from headrace.log.checkpoint import NAME as CHECKPOINT_NAME
from headrace.log.settings import LogSettings
from headrace.log.spill.files import PREFIX as SPILL_PREFIX
from headrace.log.wal.paths import wal_paths
from headrace.log.wal.writer import FENCE_NAME


def forget_wal(settings: LogSettings, data_dir: Path, *, disk: Disk) -> None:
    """Remove ring, checkpoint and spill of an earlier life. What it had acknowledged is in object storage.

    Nothing else that may lie there is touched.
    """
    directory, ring = wal_paths(settings, data_dir)
    if ring.parent != directory:
        raise Invalid(
            f"wal.path is {ring}: in a cluster of several brokers the WAL is a file that is made anew, not a device"
        )
    disk.make_directory(directory)
    for name in disk.names(directory):
        if name in (ring.name, FENCE_NAME) or name.startswith((CHECKPOINT_NAME, SPILL_PREFIX)):
            disk.remove(directory / name)
    disk.sync_directory(directory)
