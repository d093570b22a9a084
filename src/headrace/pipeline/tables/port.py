"""What a pipeline needs of a table format. Iceberg fulfils it in `iceberg`; Delta or plain Parquet could."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import Concurrent, Conflict, Invalid
from headrace.pipeline.tables.access import FileAccess
from headrace.pipeline.tables.coverage import Coverage


class TableChanged(Concurrent):
    """Schema, partitioning or coverage moved while files were being written: write them again."""


class LeaseHeld(Conflict):
    """Another live process runs the same writer on the same table."""


class ColumnMismatch(Invalid):
    """A frame's columns are not those of the table it goes to."""


class PartitionField(msgspec.Struct, frozen=True):
    """How a table is laid out: by `hour`, `day` or `identity` of a column."""

    transform: str
    column: str


class TableDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A table as a pipeline declares it. Existing tables are widened to it, never narrowed."""

    name: str
    """`namespace.table`."""
    schema: StructType
    partitioning: tuple[PartitionField, ...] = ()
    comment: str = ""


class CommitToken(msgspec.Struct, frozen=True):
    """Names one batch of one writer: committing it twice changes nothing."""

    writer: str
    batch: int


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Files that exist and that no table refers to yet."""

    files: tuple[object, ...]
    record_count: int
    schema_id: int
    spec_id: int


def join_written(one: Written, other: Written) -> Written:
    """Files of two writes to the same table. Raises `TableChanged` when the table was another one in between."""
    if (one.schema_id, one.spec_id) != (other.schema_id, other.spec_id):
        raise TableChanged("the table's schema or partitioning changed between two writes of one batch")
    return Written(
        files=(*one.files, *other.files),
        record_count=one.record_count + other.record_count,
        schema_id=one.schema_id,
        spec_id=one.spec_id,
    )


class WriteTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What executors must know to write files for a table as it is now. It travels in plans."""

    metadata_json: str
    access: FileAccess
    schema_id: int
    spec_id: int

    def written(self, files: Sequence[object], record_count: int) -> Written:
        return Written(
            files=tuple(files),
            record_count=record_count,
            schema_id=self.schema_id,
            spec_id=self.spec_id,
        )


class Table(Protocol):
    name: str

    def refresh(self) -> None:
        """See what others committed."""
        ...

    def coverage(self) -> Coverage: ...

    def has_committed(self, token: CommitToken) -> bool: ...

    def hold_lease(self, writer: str) -> None:
        """Raises `LeaseHeld` while another live process is this writer."""
        ...

    def write(self, frame: DataFrame) -> Written:
        """Write the frame's rows to new files, on the executors. Raises `ColumnMismatch`."""
        ...

    def target(self, columns: StructType) -> WriteTarget:
        """For writing files of `columns` without a frame. Raises `ColumnMismatch`."""
        ...

    def commit(self, written: Written, *, token: CommitToken | None, covered: Coverage) -> bool:
        """Rows, marker and coverage in one step. False when the token was committed already.

        Without a token coverage alone tells a repetition.

        Raises `TableChanged` when the files no longer fit; they are then deleted.
        """
        ...

    def discard(self, written: Written) -> None:
        """Delete files that will not be committed."""
        ...

    def read(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """The table's rows now, with all columns or those named."""
        ...


class Tables(Protocol):
    def ensure(self, definition: TableDefinition) -> Table:
        """Open the table, after creating it or adding the columns it lacks."""
        ...

    def open(self, name: str) -> Table: ...

    def names(self) -> Sequence[str]: ...
