"""The port fulfilled by Iceberg, through pyiceberg, on the driver.

Every commit makes a snapshot, even an empty one, and requires that the branch, the schema and the partition spec are those
that were looked at: a commit of properties alone would be accepted on stale metadata. pyiceberg's own retry is off
(`commit.retry.num-retries=0`), because it lands a batch twice when two drivers race; the loop here looks at the marker first.
"""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, GreaterThanOrEqual, LessThan, Or
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy.exc import OperationalError

from headrace.clock import Clock, SystemClock
from headrace.errors import Concurrent, NotFound
from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.coverage import Coverage, Range
from headrace.pipeline.tables.evolution import check_columns, widen
from headrace.pipeline.tables.lease import Lease, new_lease
from headrace.pipeline.tables.maintenance import expire_snapshots
from headrace.pipeline.tables.port import (
    CommitToken,
    LeaseHeld,
    TableChanged,
    TableDefinition,
    WriteTarget,
    Written,
)
from headrace.pipeline.tables.retention import DEFAULT_RETENTION, Retention
from headrace.pipeline.tables.rewrites import rewrite_producer
from headrace.pipeline.tables.scanning import check_writable, is_same_content, plan_files, read_rows, spark_schema
from headrace.pipeline.tables.types import iceberg_schema, partition_spec
from headrace.pipeline.tables.writer import (
    DATA_FILE_COLUMN,
    OUTPUT_SCHEMA,
    file_writer,
    metadata_for_writers,
)

COVERED: Final = "headrace.covered"
COMMIT_PREFIX: Final = "headrace.commit."
LEASE_PREFIX: Final = "headrace.lease."
COMMENT: Final = "comment"
CONFLICTS_MAX: Final = 50
"""Commits of others that may get in between before we say that the table is being fought over."""

NOTHING_COVERED: Final = Coverage()

TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    # Arrow would take 1. Orders of which none is like another are 6 % smaller with 3, for 6 % of the time it takes to write
    # them; 6 takes twice the time and wins nothing.
    "write.parquet.compression-level": "3",
}

log = structlog.get_logger(__name__)


class IcebergTables:
    """The tables of one catalog."""

    def __init__(
        self, catalog: Catalog, *, clock: Clock | None = None, retention: Retention = DEFAULT_RETENTION
    ) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._retention = retention

    def ensure(self, definition: TableDefinition) -> "IcebergTable":
        namespace = definition.name.rpartition(".")[0]
        schema = iceberg_schema(definition.schema)
        try:
            handle = self._catalog.load_table(definition.name)
        except NoSuchTableError:
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
            try:
                handle = self._catalog.create_table(
                    definition.name,
                    schema=schema,
                    partition_spec=partition_spec(definition.partitioning, schema),
                    properties={**TABLE_PROPERTIES, COMMENT: definition.comment},
                )
            except TableAlreadyExistsError:
                handle = self._catalog.load_table(definition.name)
        widen(handle, definition)
        return IcebergTable(handle, self._clock, self._retention)

    def open(self, name: str) -> "IcebergTable":
        try:
            return IcebergTable(self._catalog.load_table(name), self._clock, self._retention)
        except NoSuchTableError as error:
            raise NotFound(f"no table {name}") from error

    def names(self) -> Sequence[str]:
        return sorted(
            ".".join(identifier)
            for namespace in self._catalog.list_namespaces()
            for identifier in self._catalog.list_tables(namespace)
        )


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """All that one commit does."""

    written: Written
    token: CommitToken | None = None
    covered: Coverage = NOTHING_COVERED
    removed: tuple[FileScanTask, ...] = ()
    is_rewrite: bool = False
    """Whether the rows stay the same, as they do when files are merged."""
    properties: dict[str, str] = {}


class IcebergTable:
    """One table, seen at one moment; `refresh` moves the moment."""

    def __init__(self, handle: IcebergTableHandle, clock: Clock, retention: Retention = DEFAULT_RETENTION) -> None:
        self._handle = handle
        self._clock = clock
        self._retention = retention
        self.name = ".".join(handle.name())

    @property
    def handle(self) -> IcebergTableHandle:
        """pyiceberg's own object, for maintenance and inspection."""
        return self._handle

    def refresh(self) -> None:
        self._handle.refresh()

    def coverage(self) -> Coverage:
        return Coverage.parse(self._handle.properties.get(COVERED))

    def has_committed(self, token: CommitToken) -> bool:
        last = self._handle.properties.get(COMMIT_PREFIX + token.writer)
        return last is not None and int(last) >= token.batch

    def hold_lease(self, writer: str) -> None:
        text = self._handle.properties.get(LEASE_PREFIX + _pipeline_of(writer))
        if text is None:
            return
        lease = msgspec.json.decode(text, type=Lease)
        if lease.is_held_by_another(now_ms=self._clock.now_ms()):
            raise LeaseHeld(
                f"{_pipeline_of(writer)} already runs on {lease.host}, process {lease.process_id}, "
                f"and writes to {self.name}"
            )

    def write(self, frame: DataFrame) -> Written:
        target = self.target(frame.schema)
        write_files = file_writer(target.metadata_json, target.access)
        rows = self._fit(frame).mapInArrow(write_files, OUTPUT_SCHEMA).collect()
        files = [pickle.loads(bytes(row[DATA_FILE_COLUMN])) for row in rows]
        return target.written(files, sum(data_file.record_count for data_file in files))

    def target(self, columns: StructType) -> WriteTarget:
        check_writable(self._handle)
        check_columns(self.name, columns, spark_schema(self._handle))
        metadata = self._handle.metadata
        return WriteTarget(
            metadata_json=metadata_for_writers(metadata),
            access=file_access(self._handle.io.properties),
            schema_id=metadata.current_schema_id,
            spec_id=metadata.default_spec_id,
        )

    def commit(self, written: Written, *, token: CommitToken | None, covered: Coverage) -> bool:
        return self._commit(_Change(written=written, token=token, covered=covered))

    def replace(
        self,
        written: Written,
        *,
        removed: Sequence[FileScanTask],
        covered: Coverage = NOTHING_COVERED,
        properties: dict[str, str] | None = None,
        is_rewrite: bool = False,
    ) -> None:
        """Swap files for others in one commit. `removed` are the files as they were read.

        Raises `TableChanged` when some of them are no longer there, or rows of theirs were deleted since.
        """
        change = _Change(
            written=written,
            removed=tuple(removed),
            covered=covered,
            properties=properties or {},
            is_rewrite=is_rewrite,
        )
        self._commit(change)

    def files_with(self, column: str, ranges: Sequence[Range]) -> list[FileScanTask]:
        """Files that may hold a value of `column` in one of the ranges, by their statistics."""
        wanted: BooleanExpression = AlwaysFalse()
        for part in ranges:
            inside = And(GreaterThanOrEqual(column, part.start), LessThan(column, part.end))
            wanted = Or(wanted, inside)
        return plan_files(self._handle, wanted)

    def set_properties(self, properties: dict[str, str]) -> None:
        """Notes that belong to the table, in a commit that fails when somebody else was faster, and is then repeated."""
        metadata = self._handle.metadata
        nothing = Written(
            files=(), record_count=0, schema_id=metadata.current_schema_id, spec_id=metadata.default_spec_id
        )
        self._commit(_Change(written=nothing, properties=properties))

    def _commit(self, change: "_Change") -> bool:
        for _ in range(CONFLICTS_MAX):
            if change.token is not None and self.has_committed(change.token):
                self.discard(change.written)
                return False
            self._check_fit(change)
            try:
                self._try_commit(change)
            except (CommitFailedException, OperationalError) as error:
                # The error may also hide a commit that landed: the marker, looked at again above, tells.
                log.info("commit met another one", table=self.name, error=str(error))
                self.refresh()
                continue
            self.expire_snapshots()
            return True
        raise Concurrent(f"{self.name}: {CONFLICTS_MAX} commits of others got in between")

    def expire_snapshots(self, *, is_due: bool = False) -> int:
        """Forget snapshots that the retention lets go. Gives back how many."""
        return expire_snapshots(self._handle, now_ms=self._clock.now_ms(), retention=self._retention, is_due=is_due)

    def _try_commit(self, change: "_Change") -> None:
        transaction = self._handle.transaction()
        transaction._apply(
            (),
            (
                AssertCurrentSchemaId(current_schema_id=change.written.schema_id),
                AssertDefaultSpecId(default_spec_id=change.written.spec_id),
            ),
        )
        properties = dict(change.properties)
        if change.covered:
            properties[COVERED] = self.coverage().plus(change.covered).format()
        if change.token is not None:
            properties[COMMIT_PREFIX + change.token.writer] = str(change.token.batch)
            lease = new_lease(now_ms=self._clock.now_ms())
            properties[LEASE_PREFIX + _pipeline_of(change.token.writer)] = msgspec.json.encode(lease).decode()
        if properties:
            transaction.set_properties(properties)
        update = transaction.update_snapshot()
        if change.is_rewrite:
            producer = rewrite_producer(transaction, self._handle)
        else:
            producer = update.overwrite() if change.removed else update.merge_append()
        with producer as snapshot:
            for task in change.removed:
                snapshot.delete_data_file(task.file)
            for data_file in change.written.files:
                snapshot.append_data_file(data_file)
        transaction.commit_transaction()

    def _check_fit(self, change: "_Change") -> None:
        metadata = self._handle.metadata
        written = change.written
        reason = None
        if (metadata.current_schema_id, metadata.default_spec_id) != (written.schema_id, written.spec_id):
            reason = "its schema or partitioning changed"
        elif change.covered.overlaps(self.coverage()):
            reason = "somebody else committed some of these offsets"
        elif change.removed:
            reason = self._reason_not_to_remove(change.removed)
        if reason is not None:
            self.discard(written)
            raise TableChanged(f"{self.name}: {reason} since the files were written")

    def _reason_not_to_remove(self, removed: Sequence[FileScanTask]) -> str | None:
        """Compared with the snapshot that the commit then requires to be the newest: nothing can come in between."""
        live = {task.file.file_path: task for task in plan_files(self._handle)}
        for task in removed:
            now = live.get(task.file.file_path)
            if now is None:
                return "files to be replaced are gone"
            if not is_same_content(now, task):
                return "rows of files to be replaced were deleted"
        return None

    def discard(self, written: Written) -> None:
        for data_file in written.files:
            try:
                self._handle.io.delete(data_file.file_path)  # type: ignore[attr-defined]
            except OSError as error:
                # An orphan costs space until the next sweep; a failed clean-up must not fail the batch.
                log.warning("file left behind", table=self.name, error=str(error))

    def read(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        return read_rows(spark, self._handle, columns=columns)

    def read_files(
        self, spark: SparkSession, tasks: Sequence[FileScanTask], columns: Sequence[str] | None = None
    ) -> DataFrame:
        """The rows of some of the table's files."""
        return read_rows(spark, self._handle, tasks=tasks, columns=columns)

    def _fit(self, frame: DataFrame) -> DataFrame:
        """The frame's columns in the table's order."""
        given = frame.columns
        # A column that an older version of the pipeline filled stays in the table and is null from now on.
        return frame.select(
            *(
                F.col(field.name) if field.name in given else F.lit(None).cast(field.dataType).alias(field.name)
                for field in spark_schema(self._handle).fields
            )
        )


def _pipeline_of(writer: str) -> str:
    """`bronze:7f3a...` is one run of the pipeline `bronze`."""
    return writer.partition(":")[0]
