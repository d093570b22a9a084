"""The readers that Spark calls for a table, on the driver to plan and on executors to read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.table_source.options import TableOptions, parse_table_options
from headrace.pipeline.tables.catalog import open_catalog
from headrace.pipeline.tables.iceberg import IcebergTables
from headrace.pipeline.tables.positions import TablePosition, newest_position, pack, plan_between, plan_snapshot
from headrace.pipeline.tables.scanning import PlannedFile, Scan, TableHandle, spark_schema


def open_table(options: TableOptions) -> TableHandle:
    return IcebergTables(open_catalog(options.warehouse)).open(options.table).handle


def table_schema(options: Mapping[str, str]) -> StructType:
    """The table's columns, as it is now."""
    # The schema is asked for before anybody says whether it is for a batch or a stream, so options of both are let pass.
    return spark_schema(open_table(parse_table_options(options, is_stream=None)))


def make_batch_reader(options: Mapping[str, str], schema: StructType) -> "TableReader":
    parsed = parse_table_options(options, is_stream=False)
    kind = PruningTableReader if parsed.has_pushdown else TableReader
    return kind(parsed, schema)


def make_stream_reader(options: Mapping[str, str], schema: StructType) -> "TableStreamReader":
    return TableStreamReader(parse_table_options(options, is_stream=True), schema)


class FilesPartition(InputPartition):  # type: ignore[misc]
    """Some files, and how to read them: the table may be another one by the time they are read."""

    def __init__(self, scan: Scan, tasks: list[PlannedFile]) -> None:
        self.scan = scan
        self.tasks = tasks


class TableReader(DataSourceReader):  # type: ignore[misc]
    """One read of a table, as it is when the query is planned."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema.fieldNames()
        self._filters: list[Filter] = []
        _check_columns(schema, open_table(options))

    def partitions(self) -> Sequence[InputPartition]:
        handle = open_table(self._options)
        tasks = plan_snapshot(handle, self._options.snapshot_id, self._filters)
        return _partitions(handle, self._columns, tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class PruningTableReader(TableReader):
    """Also looks at the query's filters. A class of its own, because Spark refuses to plan a reader that defines
    `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = filters
        # Spark looks at every row again: files are left out by their partition and statistics only.
        return filters


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """What is appended to a table. Spark pickles it, so the table is opened where it is needed."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema.fieldNames()
        self._target: TablePosition | None = None
        _check_columns(schema, open_table(options))

    # Spark keeps positions as JSON.
    def initialOffset(self) -> dict[str, Any]:
        newest = newest_position(open_table(self._options))
        is_latest = self._options.starting == "latest"
        return (newest if is_latest else msgspec.structs.replace(newest, snapshot_id=None)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return (self._target or newest_position(open_table(self._options))).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = newest_position(open_table(self._options))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        handle = open_table(self._options)
        positions = TablePosition.from_json(start), TablePosition.from_json(end)
        tasks = plan_between(handle, *positions, skips_changes=self._options.skips_changes)
        return _partitions(handle, self._columns, tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


def _partitions(handle: TableHandle, columns: Sequence[str], tasks: Sequence[PlannedFile]) -> list[FilesPartition]:
    scan = Scan(handle, columns)
    return [FilesPartition(scan, part) for part in pack(tasks)]


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark plans one partition without a value where we plan none.
    if isinstance(partition, FilesPartition):
        yield from partition.scan.read(partition.tasks)


def _check_columns(schema: StructType, handle: TableHandle) -> None:
    """The user may have narrowed the columns with `.schema(...)`. Types may not change."""
    known = {field.name: field.dataType.simpleString() for field in spark_schema(handle).fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType.simpleString():
            raise InvalidOption(
                f"column {field.name} {field.dataType.simpleString()} is not one of the table's: "
                + ", ".join(f"{name} {kind}" for name, kind in known.items())
            )
