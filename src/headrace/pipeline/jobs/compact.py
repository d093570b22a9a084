"""`compact`: many small files made few, old snapshots and orphaned files removed.

Only closed partitions are touched, those nothing new is expected in; should something arrive all the same, the commit notices
that a file it replaces is gone, or lands beside it. Executors rewrite; the driver swaps files in one commit per group list.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.transforms import DayTransform, HourTransform
from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.pipeline.jobs.replay import is_replay_pending
from headrace.pipeline.tables.access import FileAccess, file_access
from headrace.pipeline.tables.iceberg import IcebergTable, live_files
from headrace.pipeline.tables.maintenance import (
    ORPHAN_AGE_MS,
    SNAPSHOTS_KEPT,
    delete_orphans,
    expire_snapshots,
    small_file_groups,
)
from headrace.pipeline.tables.port import TableChanged, Written
from headrace.pipeline.tables.reading import arrow_schema, conform
from headrace.pipeline.tables.writer import (
    DATA_FILE_COLUMN,
    OUTPUT_SCHEMA,
    TaskWriter,
    metadata_for_writers,
)

FILE_BYTES_TARGET: Final = 128 * 1024 * 1024
HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
ROWS_PER_BATCH: Final = 16_384


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
    snapshots_kept: int = SNAPSHOTS_KEPT,
    orphan_age_ms: int = ORPHAN_AGE_MS,
) -> Compacted:
    table.refresh()
    now_ms = clock.now_ms()
    groups = small_file_groups(
        live_files(table.handle),
        size_target=FILE_BYTES_TARGET,
        is_closed=lambda data_file: is_closed(table.handle, data_file, now_ms=now_ms),
    )
    before = after = 0
    if groups and not is_replay_pending(table):
        removed = [data_file for group in groups for data_file in group]
        written = _rewrite(spark, table.handle, groups)
        try:
            table.replace(written, removed=removed)
            before, after = len(removed), len(written.files)
        except TableChanged:
            # Another compaction was faster; its result is as good as ours.
            pass
    expired = expire_snapshots(table.handle, keep=snapshots_kept)
    deleted = delete_orphans(table.handle, now_ms=clock.now_ms(), age_ms=orphan_age_ms)
    return Compacted(files_before=before, files_after=after, snapshots_expired=expired, orphans_deleted=deleted)


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


def _rewrite(spark: SparkSession, handle: IcebergTableHandle, groups: list[list[DataFile]]) -> Written:
    metadata_json = metadata_for_writers(handle.metadata)
    access = file_access(handle.io.properties)

    def rewrite(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        metadata = TableMetadataUtil.parse_raw(metadata_json)
        schema = arrow_schema(metadata.schema())
        for batch in batches:
            for paths in batch.column("paths").to_pylist():
                rows = _read_rows(paths, access, schema)
                for data_file in TaskWriter(metadata, access).write(rows):
                    pickled = pa.array([pickle.dumps(data_file)], pa.binary())
                    yield pa.RecordBatch.from_pydict({DATA_FILE_COLUMN: pickled})

    listed: list[tuple[Any]] = [([data_file.file_path for data_file in group],) for group in groups]
    tasks = spark.createDataFrame(listed, "paths array<string>").repartition(len(listed))
    files = tuple(
        pickle.loads(bytes(row[DATA_FILE_COLUMN])) for row in tasks.mapInArrow(rewrite, OUTPUT_SCHEMA).collect()
    )
    return Written(
        files=files,
        record_count=sum(data_file.record_count for data_file in files),
        schema_id=handle.metadata.current_schema_id,
        spec_id=handle.metadata.default_spec_id,
    )


def _read_rows(paths: list[str], access: FileAccess, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Every row with every column, and in one type: files older than a column lack it."""
    for path in paths:
        with load_file_io(access.properties, path).new_input(path).open() as stream:
            for rows in pq.ParquetFile(stream).iter_batches(batch_size=ROWS_PER_BATCH):
                yield conform(rows, schema)
