"""Arrow batches to Iceberg data files, on an executor.

The only module that uses pyiceberg's writer classes, which are not documented as stable: `pyiceberg<0.13` is pinned for
its sake. Rows are held per partition value until they make a decent row group; what is held over all open partitions of a
task is bounded, and the largest is written out first. See ADR 0007.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import load_file_io
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from headrace.pipeline.tables.access import FileAccess
from headrace.pipeline.tables.projection import mend_projection

WrittenFile: TypeAlias = DataFile
DATA_FILE_COLUMN: Final = "data_file"
OUTPUT_SCHEMA: Final = f"{DATA_FILE_COLUMN} binary"
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Arrow bytes that make a row group: what readers skip by, and what they hold in memory."""
BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Arrow bytes one task holds over all its open partitions."""
FILE_BYTES_TARGET: Final = 512 * 1024 * 1024
"""Arrow bytes after which a file is closed; on disk that is some 100 MiB."""


def metadata_for_writers(metadata: TableMetadata) -> str:
    text: str = without_history(metadata).model_dump_json()
    return text


def without_history(metadata: TableMetadata) -> TableMetadata:
    """What executors need of a table: a history would make every closure grow with the table's age."""
    return metadata.model_copy(
        update={
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
            "statistics": [],
            "partition_statistics": [],
        }
    )


def file_writer(
    metadata_json: str, access: FileAccess
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows in, one pickled `DataFile` per file out."""

    def write_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for data_file in TaskWriter.of(metadata_json, access).write(batches):
            yield pa.RecordBatch.from_pydict({DATA_FILE_COLUMN: pa.array([pickle.dumps(data_file)], pa.binary())})

    return write_files


@dataclass(slots=True)
class _OpenPartition:
    """Rows of one partition value on their way into its current file."""

    key: PartitionKey | None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    buffered_bytes: int = 0
    written_bytes: int = 0
    path: str = ""
    output: Any = None
    writer: FileFormatWriter | None = None


class TaskWriter:
    """Everything one Spark task writes to one table."""

    def __init__(self, metadata: TableMetadata, access: FileAccess) -> None:
        mend_projection()
        self._metadata = metadata
        self._schema = metadata.schema()
        self._spec = metadata.spec()
        self._io = load_file_io(access.properties, metadata.location)
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._format = FileFormatFactory.get(FileFormat.PARQUET)
        self._open: dict[tuple[Any, ...], _OpenPartition] = {}
        self._task_id = uuid4().hex
        self._file_count = 0

    @classmethod
    def of(cls, metadata_json: str, access: FileAccess) -> "TaskWriter":
        """For a table as `metadata_for_writers` describes it."""
        return cls(TableMetadataUtil.parse_raw(metadata_json), access)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """All of `batches`: files as they become large enough, the last ones when the batches end."""
        yield from self.add(batches)
        yield from self.finish()

    def add(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Files that became large enough on the way."""
        for batch in batches:
            if not batch.num_rows:
                continue
            for values, rows in self._by_partition(self._with_field_ids(batch)):
                partition = self._open.get(values)
                if partition is None:
                    partition = self._open[values] = _OpenPartition(self._partition_key(values))
                partition.batches.append(rows)
                partition.buffered_bytes += rows.nbytes
                if partition.buffered_bytes >= ROW_GROUP_BYTES:
                    yield from self._write_out(partition)
            while sum(p.buffered_bytes for p in self._open.values()) > BUFFERED_BYTES_MAX:
                yield from self._write_out(max(self._open.values(), key=lambda p: p.buffered_bytes))

    def finish(self) -> Iterator[DataFile]:
        """The files that are still open. Nothing can be added behind it."""
        for partition in self._open.values():
            yield from self._write_out(partition, is_last=True)

    def _with_field_ids(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = pyarrow_to_schema(batch.schema, name_mapping=self._schema.name_mapping)
        return _to_requested_schema(
            requested_schema=self._schema,
            file_schema=given,
            batch=batch,
            include_field_ids=True,
            format_model=self._format,
        )

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """The rows of each partition value. Most batches have one value, and then nothing is copied."""
        if self._spec.is_unpartitioned():
            yield (), batch
            return
        columns = []
        for partition_field in self._spec.fields:
            source = self._schema.find_field(partition_field.source_id)
            transform = partition_field.transform.pyarrow_transform(source.field_type)
            columns.append(transform(batch.column(source.name)))
        names = [f"p{index}" for index in range(len(columns))]
        keys = pa.table(columns, names=names)
        distinct = keys.group_by(names).aggregate([]).to_pylist()
        for row in distinct:
            values = tuple(row[name] for name in names)
            if len(distinct) == 1:
                yield values, batch
                return
            mask = None
            for name in names:
                same = pc.is_null(keys[name]) if row[name] is None else pc.equal(keys[name], row[name])
                mask = same if mask is None else pc.and_(mask, same)
            yield values, batch.filter(pc.fill_null(mask, False).combine_chunks())

    def _partition_key(self, values: tuple[Any, ...]) -> PartitionKey | None:
        if not values:
            return None
        return PartitionKey(
            field_values=[
                PartitionFieldValue(field=partition_field, value=value)
                for partition_field, value in zip(self._spec.fields, values, strict=True)
            ],
            partition_spec=self._spec,
            schema=self._schema,
        )

    def _write_out(self, partition: _OpenPartition, *, is_last: bool = False) -> Iterator[DataFile]:
        if partition.batches:
            if partition.writer is None:
                self._open_file(partition)
            assert partition.writer is not None
            partition.writer.write(pa.Table.from_batches(partition.batches))
            partition.written_bytes += partition.buffered_bytes
            partition.batches, partition.buffered_bytes = [], 0
        if partition.writer is not None and (is_last or partition.written_bytes >= FILE_BYTES_TARGET):
            yield self._close_file(partition)

    def _open_file(self, partition: _OpenPartition) -> None:
        self._file_count += 1
        name = f"{self._task_id}-{self._file_count:05d}.{self._format.file_extension()}"
        partition.path = self._locations.new_data_location(data_file_name=name, partition_key=partition.key)
        partition.output = self._io.new_output(partition.path)
        partition.writer = self._format.create_writer(partition.output, self._schema, self._metadata.properties)

    def _close_file(self, partition: _OpenPartition) -> DataFile:
        assert partition.writer is not None
        statistics = partition.writer.close()
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=partition.path,
            file_format=FileFormat.PARQUET,
            partition=partition.key.partition if partition.key else Record(),
            file_size_in_bytes=len(partition.output),
            sort_order_id=None,
            spec_id=self._metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        partition.writer, partition.written_bytes = None, 0
        return data_file
