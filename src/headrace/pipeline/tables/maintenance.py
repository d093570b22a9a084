"""Keeping tables small: old snapshots, files nobody refers to, and many small files made few.

Snapshots are expired by the committer itself, every few dozen commits, because every commit reads and writes their list.
Files are only deleted when they are older than an age limit: a reader that planned a while ago must still find them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import structlog
from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform
from sqlalchemy.exc import OperationalError

from headrace.errors import Fault
from headrace.pipeline.tables.retention import DEFAULT_RETENTION, Retention

EXPIRED_AT_ONCE_MIN: Final = 10
"""Expiry is a commit of its own: it waits until as many snapshots can go as are kept, and no fewer than this."""
HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
ORPHAN_AGE_MS: Final = 3 * HOUR_MS
_VERSION_HINT: Final = "version-hint.text"
"""Where catalogs that are a directory keep which metadata is the newest."""

log = structlog.get_logger(__name__)


def expire_snapshots(
    handle: IcebergTableHandle, *, now_ms: int, retention: Retention = DEFAULT_RETENTION, is_due: bool = False
) -> int:
    """Forget what the retention lets go, once it is worth a commit, or at once when it `is_due`."""
    retention = retention.of_table(handle.properties)
    expired = expired_snapshots(handle.metadata, now_ms=now_ms, retention=retention)
    if not expired or (not is_due and len(expired) < max(retention.count, EXPIRED_AT_ONCE_MIN)):
        return 0
    try:
        handle.maintenance.expire_snapshots().by_ids(expired).commit()
    except (CommitFailedException, OperationalError, ValueError) as error:
        # Another committer was faster, with this or with its own batch; the next commit tries again.
        log.info("snapshots not expired", table=".".join(handle.name()), error=str(error))
        handle.refresh()
        return 0
    return len(expired)


def expired_snapshots(metadata: TableMetadata, *, now_ms: int, retention: Retention) -> list[int]:
    """Snapshots that nothing keeps: neither a tag, nor a branch by its own rules or by `retention`, nor their age."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    kept = {
        snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms > now_ms - retention.age_ms
    }
    for ref in metadata.refs.values():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            continue
        count = ref.min_snapshots_to_keep or retention.count
        age_ms = retention.age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
        for place, snapshot in enumerate(_line_of(by_id, ref.snapshot_id)):
            if place < count or snapshot.timestamp_ms > now_ms - age_ms:
                kept.add(snapshot.snapshot_id)
    oldest_first = sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    return [snapshot.snapshot_id for snapshot in oldest_first if snapshot.snapshot_id not in kept]


def _line_of(by_id: Mapping[int, Snapshot], newest: int | None) -> Iterator[Snapshot]:
    """A snapshot, the one before it, and so on, as far as they are remembered."""
    while newest is not None and (snapshot := by_id.get(newest)) is not None:
        yield snapshot
        newest = snapshot.parent_snapshot_id


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
        if info.path not in kept
        and info.base_name != _VERSION_HINT
        and info.mtime_ns is not None
        and info.mtime_ns // 1_000_000 <= now_ms - age_ms
    ]
    for path in orphans:
        filesystem.delete_file(path)
    return len(orphans)


def file_groups(
    tasks: Iterable[FileScanTask], *, size_target: int, is_closed: Callable[[DataFile], bool]
) -> list[list[FileScanTask]]:
    """Files of closed partitions to be rewritten together: by partition value, about a target's worth.

    Small ones, two or more, and any from which rows were deleted, so that their bytes go as well.
    """
    by_partition: dict[Any, list[FileScanTask]] = {}
    for task in tasks:
        data_file = task.file
        is_small = data_file.file_size_in_bytes < size_target * 3 // 4
        if (is_small or task.delete_files) and is_closed(data_file):
            by_partition.setdefault((data_file.spec_id, data_file.partition), []).append(task)
    groups = []
    for members in by_partition.values():
        group: list[FileScanTask] = []
        size = 0
        for task in sorted(members, key=lambda member: member.file.file_size_in_bytes):
            if group and size + task.file.file_size_in_bytes > size_target:
                groups.append(group)
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1 or group[0].delete_files]


def _reachable(handle: IcebergTableHandle) -> Iterable[str]:
    yield handle.metadata_location
    for entry in handle.metadata.metadata_log:
        yield entry.metadata_file
    for statistics in (*handle.metadata.statistics, *handle.metadata.partition_statistics):
        yield statistics.statistics_path
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


def is_closed(handle: IcebergTableHandle, data_file: DataFile, *, now_ms: int) -> bool:
    """Whether the file's hour or day is over, with one more to spare for stragglers. Other partitions are always closed."""
    spec = handle.specs()[data_file.spec_id]
    for index, field in enumerate(spec.fields):
        value = data_file.partition[index]
        if value is None:
            continue
        if isinstance(field.transform, HourTransform) and value >= now_ms // HOUR_MS - 1:
            return False
        if isinstance(field.transform, DayTransform) and value >= now_ms // DAY_MS - 1:
            return False
    return True
