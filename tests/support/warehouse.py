"""A warehouse in a directory, filled and changed without Spark: by our writer, and by pyiceberg as another engine would."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.catalog import WarehouseSettings, open_catalog
from headrace.pipeline.tables.iceberg import TABLE_PROPERTIES
from headrace.pipeline.tables.scanning import Scan, plan_files
from headrace.pipeline.tables.writer import TaskWriter

_POSITION_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
_EMPTY_SPEC = PartitionSpec()


def warehouse(directory: Path) -> Catalog:
    return open_catalog(WarehouseSettings(path=str(directory / "warehouse")))


def create_table(
    catalog: Catalog, name: str, schema: Schema, *, spec: PartitionSpec = _EMPTY_SPEC, format_version: int = 2
) -> Table:
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    properties = {**TABLE_PROPERTIES, "format-version": str(format_version)}
    return catalog.create_table(name, schema, partition_spec=spec, properties=properties)


def append(table: Table, rows: pa.Table) -> None:
    """One commit with the rows, in files of our writer's."""
    files = list(TaskWriter(table.metadata, file_access(table.io.properties)).write(rows.to_batches()))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for data_file in files:
            snapshot.append_data_file(data_file)


# Rows of any schema.
def rows_of(table: Table, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All rows as our scan reads them."""
    batches: Iterable[pa.RecordBatch] = Scan(table, columns).read(plan_files(table))
    return [row for batch in batches for row in batch.to_pylist()]


def delete_positions(table: Table, data_file: DataFile, positions: Sequence[int]) -> None:
    """Delete rows of a file by a position delete file, as engines that merge on read do. pyiceberg itself makes none."""
    path = f"{table.location()}/data/deletes-{table.metadata.last_sequence_number}.parquet"
    rows = pa.table(
        {"file_path": [data_file.file_path] * len(positions), "pos": sorted(positions)}, schema=_POSITION_DELETE_SCHEMA
    )
    _add_deletes(table, data_file, path, rows, DataFileContent.POSITION_DELETES, None)


def delete_equal(table: Table, data_file: DataFile, field_id: int, rows: pa.Table) -> None:
    """Delete rows by their values, which pyiceberg cannot read."""
    path = f"{table.location()}/data/equal-{table.metadata.last_sequence_number}.parquet"
    _add_deletes(table, data_file, path, rows, DataFileContent.EQUALITY_DELETES, [field_id])


def _add_deletes(
    table: Table, data_file: DataFile, path: str, rows: pa.Table, content: DataFileContent, ids: list[int] | None
) -> None:
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    delete_file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        equality_ids=ids,
    )
    delete_file.spec_id = data_file.spec_id
    with table.transaction() as transaction, _Deletes(Operation.DELETE, transaction, table.io) as snapshot:
        snapshot.delete_files = [delete_file]
    table.refresh()


class _Deletes(_FastAppendFiles):  # type: ignore[misc]
    """A commit of delete files."""

    delete_files: list[DataFile]

    # pyiceberg's classes have no types here.
    def _process_manifests(self, manifests: list[Any]) -> list[Any]:
        spec = self.spec(self.delete_files[0].spec_id)
        with _DeletesWriter(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, "null") as writer:
            for delete_file in self.delete_files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=delete_file,
                    )
                )
        return [*manifests, writer.to_manifest_file()]


class _DeletesWriter(ManifestWriterV2):  # type: ignore[misc]
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
