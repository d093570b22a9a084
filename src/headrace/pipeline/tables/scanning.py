"""Iceberg tables as rows, by pyiceberg's own scan: field ids, delete files, promoted types, defaults.

There is no Iceberg jar for this Spark, so files are planned on the driver and read by pyiceberg on the executors, from any
FileIO. Nothing here looks into a file by a column's name, and what the library cannot read is refused when it is planned,
before anything is changed. Uses the streaming half of pyiceberg's `ArrowScan`, which is private: its public half holds all
rows of a file in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTableHandle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import UnsupportedOperation
from headrace.pipeline.session import cores_of
from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.projection import mend_projection
from headrace.pipeline.tables.writer import without_history

TableHandle: TypeAlias = IcebergTableHandle
PlannedFile: TypeAlias = FileScanTask
"""Names for who passes them on and does not look into them: outside of this package nobody knows the library."""
EVERYTHING: Final = AlwaysTrue()
FORMAT_VERSION_WRITTEN_MAX: Final = 2
"""pyiceberg reads version 3 and does not write it."""
TASKS_PER_CORE: Final = 3
"""Few, since a task costs more than a small file; more than one, so that no core waits long for the last."""
_READABLE: Final = frozenset({FileFormat.PARQUET, FileFormat.ORC})
_WAY_ON: Final = "let an engine that can rewrite its files first, e.g. Spark's rewrite_data_files"


def plan_files(
    handle: IcebergTableHandle, row_filter: BooleanExpression = EVERYTHING, snapshot_id: int | None = None
) -> list[FileScanTask]:
    """The table's files, now or as of a snapshot, with the deletes that apply to each, without files in which `row_filter`
    finds nothing.

    Raises `UnsupportedOperation` for a table that pyiceberg would read wrongly or not at all.
    """
    name = ".".join(handle.name())
    try:
        tasks = list(handle.scan(row_filter=row_filter, snapshot_id=snapshot_id).plan_files())
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedOperation(f"{name} cannot be read: {error}; {_WAY_ON}") from error
    check_readable(name, tasks)
    return tasks


def check_readable(name: str, tasks: Iterable[FileScanTask]) -> None:
    for task in tasks:
        if task.file.file_format not in _READABLE:
            raise UnsupportedOperation(
                f"{name} cannot be read: {task.file.file_path} is {task.file.file_format}; {_WAY_ON}"
            )
        encrypted = next((each for each in (task.file, *task.delete_files) if each.key_metadata), None)
        if encrypted is not None:
            raise UnsupportedOperation(f"{name} cannot be read: {encrypted.file_path} is encrypted; {_WAY_ON}")


def check_writable(handle: IcebergTableHandle) -> None:
    """Raises `UnsupportedOperation` for a table whose commits pyiceberg cannot make."""
    version = handle.metadata.format_version
    if version > FORMAT_VERSION_WRITTEN_MAX:
        raise UnsupportedOperation(
            f"{'.'.join(handle.name())} has format version {version}, which can be read and not written here; "
            f"give the pipeline a new table, or keep this one at version {FORMAT_VERSION_WRITTEN_MAX}"
        )


def live_files(handle: IcebergTableHandle) -> list[DataFile]:
    return [task.file for task in plan_files(handle)]


def is_same_content(one: FileScanTask, other: FileScanTask) -> bool:
    """Whether two plans find the same rows in a file: files never change, the deletes that apply to them do."""
    return _deletes_of(one) == _deletes_of(other)


def _deletes_of(task: FileScanTask) -> set[str]:
    return {delete_file.file_path for delete_file in task.delete_files}


class Scan:
    """How to read a table's columns, or some of them, as the table is now. Executors get it pickled."""

    def __init__(
        self,
        handle: IcebergTableHandle,
        columns: Sequence[str] | None = None,
        row_filter: BooleanExpression = EVERYTHING,
    ) -> None:
        self._metadata = without_history(handle.metadata)
        self._access = file_access(handle.io.properties)
        self._projected: Schema = handle.schema() if columns is None else handle.schema().select(*columns)
        self._row_filter = row_filter

    @property
    def arrow_schema(self) -> pa.Schema:
        return arrow_schema(self._projected)

    def read(self, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        """The rows that deletes and filter leave, in the current schema, a batch at a time."""
        mend_projection()
        file_io = load_file_io(self._access.properties, self._metadata.location)
        scan = ArrowScan(self._metadata, file_io, self._projected, self._row_filter)
        deletes = _read_all_delete_files(file_io, tasks)
        wanted = self.arrow_schema
        for batch in scan._record_batches_from_scan_tasks_and_deletes(tasks, deletes):
            # Files differ in how wide their texts' offsets are; Spark and the writer want one schema.
            yield batch.cast(wanted)


def read_rows(
    spark: SparkSession,
    handle: IcebergTableHandle,
    *,
    tasks: Sequence[FileScanTask] | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The table's rows, or those of some of its files."""
    planned = plan_files(handle) if tasks is None else list(tasks)
    scan = Scan(handle, columns)
    schema = from_arrow_schema(scan.arrow_schema)
    if not planned:
        return spark.createDataFrame([], schema)

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from scan.read([planned[number] for number in batch.column("id").to_pylist()])

    parts = min(len(planned), cores_of(spark) * TASKS_PER_CORE)
    return spark.range(0, len(planned), 1, parts).mapInArrow(read_tasks, schema)


def spark_schema(handle: IcebergTableHandle) -> StructType:
    return from_arrow_schema(arrow_schema(handle.schema()))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema in types that Spark takes: pyiceberg says large_string and large_binary."""
    large = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(field.name, _small(field.type)) for field in large])


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _small(child.type)) for child in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _small(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    return kind
