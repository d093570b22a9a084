"""Other files with the same rows, and the kind of snapshot that says so.

pyiceberg makes no snapshots of the kind `replace`, only `overwrite`, at which engines that read a table as a stream stop,
because rows may have changed.
"""

from collections.abc import Iterator, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.port import Written
from headrace.pipeline.tables.scanning import Scan
from headrace.pipeline.tables.writer import TaskWriter, metadata_for_writers


class Rewriting:
    """How to write rows of a table's files to others, as the table is now. Executors get it pickled."""

    def __init__(self, handle: IcebergTableHandle) -> None:
        self._scan = Scan(handle)
        self._metadata_json = metadata_for_writers(handle.metadata)
        self._access = file_access(handle.io.properties)
        self._ids = handle.metadata.current_schema_id, handle.metadata.default_spec_id

    def rewrite(self, tasks: Sequence[FileScanTask]) -> Iterator[DataFile]:
        """The rows that deletes have left of some files, in the current schema and partitioning."""
        yield from TaskWriter.of(self._metadata_json, self._access).write(self._scan.read(tasks))

    def written(self, files: Sequence[DataFile]) -> Written:
        schema_id, spec_id = self._ids
        count = sum(data_file.record_count for data_file in files)
        return Written(files=tuple(files), record_count=count, schema_id=schema_id, spec_id=spec_id)


def rewrite_producer(transaction: Transaction, handle: IcebergTableHandle) -> "_RewriteFiles":
    """For a commit to the table that swaps files without changing rows."""
    return _RewriteFiles(operation=Operation.OVERWRITE, transaction=transaction, io=handle.io)


class _RewriteFiles(_OverwriteFiles):  # type: ignore[misc]
    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # The totals are those of an overwrite; pyiceberg counts them for no other kind.
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)
