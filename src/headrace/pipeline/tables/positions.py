"""Which files a read of a table takes, and between which snapshots a stream goes on.

A stream's position is the table's id and a snapshot. It begins with all rows of the newest snapshot, or with none, and goes on
with what later snapshots append. Snapshots that only rewrite files are passed over; those that change or delete rows stop
it, because rows that were given cannot be taken back.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.snapshots import Operation, ancestors_between_ids
from pyspark.sql.datasource import Filter

from headrace.errors import Conflict, NotFound, UnsupportedOperation
from headrace.pipeline.tables.filters import expressions
from headrace.pipeline.tables.scanning import EVERYTHING, check_readable, plan_files

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Bytes on disk that one task reads: small files share a task, which costs more than they do."""
_CHANGES: Final = frozenset({Operation.OVERWRITE, Operation.DELETE})


class TablePosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream has read a table."""

    table_id: str
    snapshot_id: int | None
    """The newest snapshot that was read; None before the first."""

    # Spark keeps positions as JSON.
    def to_json(self) -> dict[str, Any]:
        return {"table_id": self.table_id, "snapshot_id": self.snapshot_id}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "TablePosition":
        return msgspec.convert(document, cls)


def plan_snapshot(
    handle: IcebergTableHandle, snapshot_id: int | None, filters: Iterable[Filter] = ()
) -> list[FileScanTask]:
    """The files of one read, of the newest snapshot if none is named, without those in which the filters find nothing."""
    if snapshot_id is not None and handle.snapshot_by_id(snapshot_id) is None:
        raise NotFound(f"{_name(handle)} has no snapshot {snapshot_id}; it may have been expired")
    wanted: BooleanExpression = EVERYTHING
    for each in expressions(filters, handle.schema()):
        wanted = And(wanted, each)
    return plan_files(handle, wanted, snapshot_id)


def newest_position(handle: IcebergTableHandle) -> TablePosition:
    snapshot = handle.current_snapshot()
    table_id = str(handle.metadata.table_uuid)
    return TablePosition(table_id=table_id, snapshot_id=snapshot.snapshot_id if snapshot is not None else None)


def plan_between(
    handle: IcebergTableHandle, start: TablePosition, end: TablePosition, *, skips_changes: bool
) -> list[FileScanTask]:
    """The files with the rows that came between two positions."""
    for position in (start, end):
        if position.table_id != str(handle.metadata.table_uuid):
            raise Conflict(
                f"{_name(handle)} was dropped and created again since this stream began; start it with a new checkpoint"
            )
    if end.snapshot_id is None or end.snapshot_id == start.snapshot_id:
        return []
    if start.snapshot_id is None:
        return plan_files(handle, EVERYTHING, _kept(handle, end.snapshot_id))
    try:
        scan = handle.incremental_append_scan(
            from_snapshot_id_exclusive=start.snapshot_id,
            to_snapshot_id_inclusive=_kept(handle, end.snapshot_id),
        )
        tasks = list(scan.plan_files())
    except ValueError as error:
        raise _expired(handle, start.snapshot_id) from error
    if not skips_changes:
        _refuse_changes(handle, start.snapshot_id, end.snapshot_id)
    check_readable(_name(handle), tasks)
    return tasks


def pack(tasks: Sequence[FileScanTask], bytes_max: int = PARTITION_BYTES) -> list[list[FileScanTask]]:
    """Tasks of about `bytes_max` each, in the order they came."""
    packed: list[list[FileScanTask]] = []
    size = bytes_max
    for task in tasks:
        if size + task.file.file_size_in_bytes > bytes_max:
            packed.append([])
            size = 0
        packed[-1].append(task)
        size += task.file.file_size_in_bytes
    return packed


def _name(handle: IcebergTableHandle) -> str:
    return ".".join(handle.name())


def _kept(handle: IcebergTableHandle, snapshot_id: int) -> int:
    if handle.snapshot_by_id(snapshot_id) is None:
        raise _expired(handle, snapshot_id)
    return snapshot_id


def _expired(handle: IcebergTableHandle, snapshot_id: int) -> NotFound:
    return NotFound(
        f"{_name(handle)}: snapshot {snapshot_id} is no longer kept, so what came after it cannot be told; keep more of them "
        "(upkeep.snapshots_kept) and start the stream with a new checkpoint"
    )


def _refuse_changes(handle: IcebergTableHandle, start: int, end: int) -> None:
    for snapshot in ancestors_between_ids(
        from_snapshot_id_exclusive=start, to_snapshot_id_inclusive=end, table_metadata=handle.metadata
    ):
        if snapshot.summary is not None and snapshot.summary.operation in _CHANGES:
            raise UnsupportedOperation(
                f"{_name(handle)}: snapshot {snapshot.snapshot_id} ({snapshot.summary.operation.value}) changed or deleted "
                "rows, which a stream cannot take back; skipChangeCommits=true goes on without it"
            )
