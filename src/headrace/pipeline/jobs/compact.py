"""`compact`: many small files made few, old snapshots and orphaned files removed.

Only closed partitions are touched, those nothing new is expected in; should something arrive all the same, it lands beside
what is rewritten. Should rows be deleted meanwhile, by whatever engine, the commit notices and is given up. Executors
rewrite, through the table's own scan; the driver swaps files in one commit.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.pipeline.jobs.replay import is_replay_pending
from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.maintenance import (
    ORPHAN_AGE_MS,
    delete_orphans,
    file_groups,
    is_closed,
)
from headrace.pipeline.tables.port import TableChanged, Written
from headrace.pipeline.tables.rewrites import Rewriting
from headrace.pipeline.tables.scanning import PlannedFile, TableHandle, check_writable, plan_files
from headrace.pipeline.tables.writer import DATA_FILE_COLUMN, OUTPUT_SCHEMA

FILE_BYTES_TARGET: Final = 128 * 1024 * 1024

log = structlog.get_logger(__name__)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    files_before: int = 0
    files_after: int = 0
    snapshots_expired: int = 0
    orphans_deleted: int = 0


def compact(
    spark: SparkSession,
    table: IcebergTable,
    clock: Clock,
    *,
    orphan_age_ms: int = ORPHAN_AGE_MS,
) -> Compacted:
    """Raises `UnsupportedOperation`, before anything is changed, for a table that cannot be read and written exactly."""
    table.refresh()
    check_writable(table.handle)
    now_ms = clock.now_ms()
    groups = file_groups(
        plan_files(table.handle),
        size_target=FILE_BYTES_TARGET,
        is_closed=lambda data_file: is_closed(table.handle, data_file, now_ms=now_ms),
    )
    before = after = 0
    if groups and not is_replay_pending(table):
        removed = [task for group in groups for task in group]
        written = _rewrite(spark, table.handle, groups)
        try:
            table.replace(written, removed=removed, is_rewrite=True)
            before, after = len(removed), len(written.files)
        except TableChanged as error:
            # Another compaction was faster, or rows were deleted meanwhile; the next round looks again.
            log.info("compaction given up", table=table.name, reason=str(error))
    expired = table.expire_snapshots(is_due=True)
    deleted = delete_orphans(table.handle, now_ms=clock.now_ms(), age_ms=orphan_age_ms)
    return Compacted(files_before=before, files_after=after, snapshots_expired=expired, orphans_deleted=deleted)


def _rewrite(spark: SparkSession, handle: TableHandle, groups: list[list[PlannedFile]]) -> Written:
    rewriting = Rewriting(handle)

    def rewrite(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for data_file in rewriting.rewrite(groups[number]):
                    pickled = pa.array([pickle.dumps(data_file)], pa.binary())
                    yield pa.RecordBatch.from_pydict({DATA_FILE_COLUMN: pickled})

    tasks = spark.range(0, len(groups), 1, len(groups))
    rows = tasks.mapInArrow(rewrite, OUTPUT_SCHEMA).collect()
    return rewriting.written([pickle.loads(bytes(row[DATA_FILE_COLUMN])) for row in rows])
