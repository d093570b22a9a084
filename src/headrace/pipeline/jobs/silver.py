"""`silver`: JSON payloads as typed rows; what does not fit goes to dead letters with the reason.

Two tables, two commits, one batch. Dead letters land first: if we die in between, the batch is repeated, the dead letters'
marker says they are there, and the good rows follow. Nothing is judged twice while the batch is held.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.errors import Invalid
from headrace.pipeline.batches import Batch
from headrace.pipeline.failpoints import reach
from headrace.pipeline.jobs.landing import Origin, Replaceable
from headrace.pipeline.jobs.straight import StraightSource, StraightWritten
from headrace.pipeline.schemas import DEAD_LETTER_DDL, parse_ddl
from headrace.pipeline.settings import Expectation
from headrace.pipeline.source.options import Subscription
from headrace.pipeline.steps.strict import Split, StrictParser, is_strict
from headrace.pipeline.steps.typed import PayloadShape, accepted, dead_letters, judge
from headrace.pipeline.tables.committing import Appended, append_files_once, append_once
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.port import PartitionField, Table, TableDefinition, Written, join_written

log = structlog.get_logger(__name__)


class Silver:
    def __init__(
        self,
        name: str,
        subscription: Subscription,
        *,
        table: str,
        dead_table: str,
        shape: PayloadShape,
        expectations: Mapping[str, Expectation] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.shape = shape
        self._expectations = {name: e for name, e in expectations.items() if e.otherwise != "drop"}
        self._names = (table, dead_table)
        self._tables: list[Table] = []

    def definitions(self) -> list[TableDefinition]:
        table, dead_table = self._names
        return [
            TableDefinition(
                name=table,
                schema=self.shape.table_schema(),
                partitioning=(PartitionField("day", "_event_time"),),
                comment=f"Typed rows of pipeline {self.name}",
            ),
            TableDefinition(
                name=dead_table,
                schema=parse_ddl(DEAD_LETTER_DDL),
                partitioning=(PartitionField("day", "failed_time"),),
                comment=f"Records that pipeline {self.name} could not take, with the reason",
            ),
        ]

    def bind(self, tables: list[Table]) -> None:
        self._tables = tables

    def land(self, batch: Batch) -> Appended:
        table, dead_table = self._tables
        if batch.straight is not None and is_strict(self.shape) and not self._expectations:
            return self._land_straight(batch.straight, batch)
        held = judge(batch.frame, self.shape).persist()
        failed_time = datetime.fromtimestamp(batch.now_ms / 1000, UTC)

        def judged_in(offsets: Coverage) -> DataFrame:
            return held if offsets == batch.covered else judge(batch.rows_in(offsets), self.shape)

        try:
            self._check(accepted(held, self.shape))
            append_once(
                dead_table,
                lambda offsets: dead_letters(judged_in(offsets), failed_time),
                token=batch.token,
                covered=batch.covered,
            )
            reach("between dead letters and rows")
            return append_once(
                table,
                lambda offsets: accepted(judged_in(offsets), self.shape),
                token=batch.token,
                covered=batch.covered,
            )
        finally:
            held.unpersist()

    def _land_straight(self, straight: StraightSource, batch: Batch) -> Appended:
        """As `land`, with the records about which there is nothing to judge never leaving the tasks that read them.

        Reading for the dead letters writes the rows' files as well. They are committed if the table lacks the same
        offsets, which it nearly always does, and deleted otherwise.
        """
        table, dead_table = self._tables
        failed_time = datetime.fromtimestamp(batch.now_ms / 1000, UTC)
        shape = self.shape
        waiting: dict[Coverage, StraightWritten] = {}
        results: list[StraightWritten] = []

        def refine(records: pa.RecordBatch) -> Split:
            return StrictParser(shape).split(records)

        def read(offsets: Coverage) -> StraightWritten:
            results.append(straight.write(offsets, table.target(shape.table_schema()), refine))
            return results[-1]

        def write_dead(offsets: Coverage) -> Written:
            if offsets not in waiting:
                waiting[offsets] = read(offsets)
            rest = waiting[offsets].rest
            if rest is None:
                return dead_table.target(parse_ddl(DEAD_LETTER_DDL)).written((), 0)
            return dead_table.write(dead_letters(judge(rest, shape), failed_time))

        def write(offsets: Coverage) -> Written:
            # Taken out: files of an attempt that fails are deleted, so another attempt needs others.
            result = waiting.pop(offsets, None) or read(offsets)
            if result.rest is None:
                return result.written
            return join_written(result.written, table.write(accepted(judge(result.rest, shape), shape)))

        try:
            append_files_once(dead_table, write_dead, token=batch.token, covered=batch.covered)
            reach("between dead letters and rows")
            return append_files_once(table, write, token=batch.token, covered=batch.covered)
        finally:
            for result in waiting.values():
                table.discard(result.written)
            for result in results:
                result.release()

    def replaceable(self) -> list[Replaceable]:
        table, dead_table = self._tables
        return [
            Replaceable(
                dead_table,
                Origin("topic", "partition", "offset"),
                lambda batch: dead_letters(
                    judge(batch.frame, self.shape), datetime.fromtimestamp(batch.now_ms / 1000, UTC)
                ),
            ),
            Replaceable(
                table,
                Origin("_topic", "_topic_partition", "_offset"),
                lambda batch: accepted(judge(batch.frame, self.shape), self.shape),
            ),
        ]

    def _check(self, rows: DataFrame) -> None:
        """Count rows that miss an expectation; raises `Invalid` for one that must not be missed."""
        if not self._expectations:
            return
        counts = rows.agg(
            *(
                F.count_if(~F.coalesce(F.expr(expectation.that), F.lit(False))).alias(name)
                for name, expectation in self._expectations.items()
            )
        ).first()
        assert counts is not None, "an aggregate without groups has one row"
        for name, expectation in self._expectations.items():
            if not counts[name]:
                continue
            if expectation.otherwise == "fail":
                raise Invalid(f"{self.name}: {counts[name]} rows do not meet {name} ({expectation.that})")
            log.warning("expectation not met", pipeline=self.name, expectation=name, rows=counts[name])
