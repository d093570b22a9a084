"""Keeping tables small: old snapshots, files nobody refers to, and many small files made few.

Snapshots are expired by the committer itself, every few dozen commits, because every commit reads and writes their list.
Files are only deleted when they are older than an age limit: a reader that planned a while ago must still find them.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog
from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTableHandle
from sqlalchemy.exc import OperationalError

from headrace.errors import Fault

SNAPSHOTS_MAX: Final = 100
SNAPSHOTS_KEPT: Final = 50
"""Expiring down to half makes it one commit in fifty, and keeps the list, which every commit rewrites, short."""
ORPHAN_AGE_MS: Final = 3 * 60 * 60 * 1000

log = structlog.get_logger(__name__)


def expire_snapshots(handle: IcebergTableHandle, *, keep: int | None = None) -> int:
    """Forget all but the newest snapshots once there are many, or at once when told how many to keep."""
    snapshots = sorted(handle.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    if keep is None and len(snapshots) <= SNAPSHOTS_MAX:
        return 0
    expired = snapshots[: -(keep or SNAPSHOTS_KEPT)]
    if not expired:
        return 0
    try:
        handle.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
    except (CommitFailedException, OperationalError, ValueError) as error:
        # Another committer was faster, with this or with its own batch; the next commit tries again.
        log.info("snapshots not expired", table=".".join(handle.name()), error=str(error))
        handle.refresh()
        return 0
    return len(expired)


def delete_orphans(handle: IcebergTableHandle, *, now_ms: int, age_ms: int = ORPHAN_AGE_MS) -> int:
    """Delete files below the table's location that no snapshot and no metadata refers to. Gives back how many."""
    handle.refresh()
    filesystem, root = _filesystem(handle)
    kept = {_plain(path) for path in _reachable(handle)}
    listed = [
        info
        for info in filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        if info.type == fs.FileType.File
    ]
    if _plain(handle.metadata_location) not in {info.path for info in listed}:
        # Listing and metadata spell paths differently, or look at different places: every file would seem an orphan.
        raise Fault(f"{'.'.join(handle.name())}: its own metadata is not among its files; nothing is deleted")
    orphans = [
        info.path
        for info in listed
        if info.path not in kept and info.mtime_ns is not None and info.mtime_ns // 1_000_000 <= now_ms - age_ms
    ]
    for path in orphans:
        filesystem.delete_file(path)
    return len(orphans)


def small_file_groups(
    files: Iterable[DataFile], *, size_target: int, is_closed: Callable[[DataFile], bool]
) -> list[list[DataFile]]:
    """Files of closed partitions to be rewritten together: by partition value, two or more, about a target's worth."""
    by_partition: dict[Any, list[DataFile]] = {}
    for data_file in files:
        if data_file.file_size_in_bytes < size_target * 3 // 4 and is_closed(data_file):
            by_partition.setdefault((data_file.spec_id, data_file.partition), []).append(data_file)
    groups = []
    for members in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for data_file in sorted(members, key=lambda member: member.file_size_in_bytes):
            if group and size + data_file.file_size_in_bytes > size_target:
                groups.append(group)
                group, size = [], 0
            group.append(data_file)
            size += data_file.file_size_in_bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _reachable(handle: IcebergTableHandle) -> Iterable[str]:
    yield handle.metadata_location
    for entry in handle.metadata.metadata_log:
        yield entry.metadata_file
    seen: set[str] = set()
    for snapshot in handle.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(handle.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(handle.io, discard_deleted=True):
                yield entry.data_file.file_path


def _filesystem(handle: IcebergTableHandle) -> tuple[fs.FileSystem, str]:
    location = handle.location()
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    return PyArrowFileIO(handle.io.properties).fs_by_scheme(scheme, netloc), path


def _plain(path: str) -> str:
    return str(PyArrowFileIO.parse_location(path)[2])
