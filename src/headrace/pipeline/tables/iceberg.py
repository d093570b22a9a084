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
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTableHandle
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlalchemy.exc import OperationalError

from headrace.clock import Clock, SystemClock
from headrace.errors import Concurrent, Conflict, NotFound
from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.coverage import Coverage, Range
from headrace.pipeline.tables.lease import Lease, new_lease
from headrace.pipeline.tables.maintenance import expire_snapshots
from headrace.pipeline.tables.port import (
    ColumnMismatch,
    CommitToken,
    LeaseHeld,
    TableChanged,
    TableDefinition,
    WriteTarget,
    Written,
)
from headrace.pipeline.tables.reading import read_files, spark_schema
from headrace.pipeline.tables.types import iceberg_schema, iceberg_type, partition_spec
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

    def __init__(self, catalog: Catalog, *, clock: Clock | None = None) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()

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
        _widen(handle, definition)
        return IcebergTable(handle, self._clock)

    def open(self, name: str) -> "IcebergTable":
        try:
            return IcebergTable(self._catalog.load_table(name), self._clock)
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
    removed: tuple[DataFile, ...] = ()
    properties: dict[str, str] = {}


class IcebergTable:
    """One table, seen at one moment; `refresh` moves the moment."""

    def __init__(self, handle: IcebergTableHandle, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock
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
        self._check_columns(columns)
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
        removed: Sequence[DataFile],
        covered: Coverage = NOTHING_COVERED,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Swap files for others in one commit. Raises `TableChanged` when some of `removed` are no longer there."""
        self._commit(_Change(written=written, removed=tuple(removed), covered=covered, properties=properties or {}))

    def files_with(self, column: str, ranges: Sequence[Range]) -> list[DataFile]:
        """Files that may hold a value of `column` in one of the ranges, by their statistics."""
        field = self._handle.schema().find_field(column)

        def may_hold(data_file: DataFile) -> bool:
            low, high = data_file.lower_bounds.get(field.field_id), data_file.upper_bounds.get(field.field_id)
            if low is None or high is None:
                return True
            least, most = from_bytes(field.field_type, low), from_bytes(field.field_type, high)
            return any(least < part.end and most >= part.start for part in ranges)

        return [data_file for data_file in live_files(self._handle) if may_hold(data_file)]

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
            expire_snapshots(self._handle)
            return True
        raise Concurrent(f"{self.name}: {CONFLICTS_MAX} commits of others got in between")

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
        producer = update.overwrite() if change.removed else update.merge_append()
        with producer as snapshot:
            for data_file in change.removed:
                snapshot.delete_data_file(data_file)
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
            live = {data_file.file_path for data_file in live_files(self._handle)}
            if not {data_file.file_path for data_file in change.removed} <= live:
                reason = "files to be replaced are gone"
        if reason is not None:
            self.discard(written)
            raise TableChanged(f"{self.name}: {reason} since the files were written")

    def discard(self, written: Written) -> None:
        for data_file in written.files:
            try:
                self._handle.io.delete(data_file.file_path)  # type: ignore[attr-defined]
            except OSError as error:
                # An orphan costs space until the next sweep; a failed clean-up must not fail the batch.
                log.warning("file left behind", table=self.name, error=str(error))

    def read(self, spark: SparkSession) -> DataFrame:
        return read_files(spark, self._handle)

    def read_paths(self, spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        """The rows of some of the table's files."""
        return read_files(spark, self._handle, paths)

    def _check_columns(self, columns: StructType) -> None:
        """The writer would drop unknown columns silently, and take a wrong type for what it is not."""
        wanted = {field.name: field.dataType.simpleString() for field in spark_schema(self._handle).fields}
        unknown = [field.name for field in columns.fields if field.name not in wanted]
        wrong = [
            f"{field.name} is {field.dataType.simpleString()}, not {wanted[field.name]}"
            for field in columns.fields
            if field.name in wanted and field.dataType.simpleString() != wanted[field.name]
        ]
        if unknown or wrong:
            raise ColumnMismatch(
                f"rows for {self.name}: unknown columns {unknown or 'none'}; wrong types {wrong or 'none'}"
            )

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


def live_files(handle: IcebergTableHandle) -> list[DataFile]:
    return [task.file for task in handle.scan().plan_files()]


def _widen(handle: IcebergTableHandle, definition: TableDefinition) -> None:
    """Add columns that the definition has and the table lacks. Anything else that differs is refused."""
    existing = {field.name: field.dataType.simpleString() for field in spark_schema(handle).fields}
    missing = [field for field in definition.schema.fields if field.name not in existing]
    for field in definition.schema.fields:
        if field.name in existing and existing[field.name] != field.dataType.simpleString():
            raise Conflict(
                f"table {definition.name} has {field.name} as {existing[field.name]}, the pipeline wants "
                f"{field.dataType.simpleString()}; give the pipeline a new table"
            )
    if missing:
        with handle.update_schema() as update:
            for field in missing:
                update.add_column(field.name, iceberg_type(field.dataType))
        handle.refresh()


def _pipeline_of(writer: str) -> str:
    """`bronze:7f3a...` is one run of the pipeline `bronze`."""
    return writer.partition(":")[0]
