"""`bronze`: every record, as it is, partitioned by the hour it arrived."""

from datetime import UTC, datetime

import pyarrow as pa

from headrace.pipeline.batches import Batch
from headrace.pipeline.jobs.landing import Origin, Replaceable
from headrace.pipeline.jobs.straight import StraightSource
from headrace.pipeline.schemas import BRONZE_DDL, parse_ddl
from headrace.pipeline.source.options import Subscription
from headrace.pipeline.steps.bronze import bronze_rows, to_bronze
from headrace.pipeline.steps.strict import Split
from headrace.pipeline.tables.committing import Appended, append_files_once, append_once
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.port import PartitionField, Table, TableDefinition, Written


class Bronze:
    def __init__(self, name: str, subscription: Subscription, table: str) -> None:
        self.name = name
        self.subscription = subscription
        self._table_name = table
        self._table: Table | None = None

    def definitions(self) -> list[TableDefinition]:
        return [
            TableDefinition(
                name=self._table_name,
                schema=parse_ddl(BRONZE_DDL),
                partitioning=(PartitionField("hour", "ingest_time"),),
                comment="Every record as it was produced",
            )
        ]

    def bind(self, tables: list[Table]) -> None:
        (self._table,) = tables

    def land(self, batch: Batch) -> Appended:
        assert self._table is not None, "bind comes first"
        if batch.straight is not None:
            return self._land_straight(self._table, batch.straight, batch)
        return append_once(
            self._table,
            lambda offsets: to_bronze(batch.rows_in(offsets), _ingest_time(batch)),
            token=batch.token,
            covered=batch.covered,
        )

    def _land_straight(self, table: Table, straight: StraightSource, batch: Batch) -> Appended:
        def refine(records: pa.RecordBatch, ingest_time: datetime = _ingest_time(batch)) -> Split:
            return Split([bronze_rows(records, ingest_time)], [])

        def write(offsets: Coverage) -> Written:
            result = straight.write(offsets, table.target(parse_ddl(BRONZE_DDL)), refine)
            result.release()
            return result.written

        return append_files_once(table, write, token=batch.token, covered=batch.covered)

    def replaceable(self) -> list[Replaceable]:
        assert self._table is not None, "bind comes first"
        origin = Origin("topic", "partition", "offset")
        return [Replaceable(self._table, origin, lambda batch: to_bronze(batch.frame, _ingest_time(batch)))]


def _ingest_time(batch: Batch) -> datetime:
    return datetime.fromtimestamp(batch.now_ms / 1000, UTC)
