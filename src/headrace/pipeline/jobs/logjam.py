"""`logjam_minute`: per-minute aggregates of request logs, and the requests worth keeping whole.

Three tables of one batch: dead letters, interesting requests, then minutes, each with its own marker.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from headrace.pipeline.batches import Batch
from headrace.pipeline.jobs.landing import Replaceable
from headrace.pipeline.schemas import DEAD_LETTER_DDL, LOGJAM_MINUTE_DDL, LOGJAM_REQUEST_DDL, parse_ddl
from headrace.pipeline.settings import LogjamSettings
from headrace.pipeline.steps.logjam_interesting import to_interesting
from headrace.pipeline.steps.logjam_minutes import to_minutes
from headrace.pipeline.steps.logjam_requests import dead_requests, to_requests
from headrace.pipeline.tables.committing import Appended, append_once
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.port import PartitionField, Table, TableDefinition


class LogjamMinute:
    def __init__(self, name: str, settings: LogjamSettings) -> None:
        self.name = name
        self.subscription = settings.subscription
        self._settings = settings
        self._tables: list[Table] = []

    def definitions(self) -> list[TableDefinition]:
        return [
            TableDefinition(
                name=self._settings.table,
                schema=parse_ddl(LOGJAM_MINUTE_DDL),
                partitioning=(PartitionField("day", "minute_time"),),
                comment="Mergeable per-minute aggregates of requests",
            ),
            TableDefinition(
                name=self._settings.requests_table,
                schema=parse_ddl(LOGJAM_REQUEST_DDL),
                partitioning=(PartitionField("day", "started_time"),),
                comment="Requests that were slow, failed or were warned about",
            ),
            TableDefinition(
                name=self._settings.dead_letters,
                schema=parse_ddl(DEAD_LETTER_DDL),
                partitioning=(PartitionField("day", "failed_time"),),
                comment="Messages that are no requests, with the reason",
            ),
        ]

    def bind(self, tables: list[Table]) -> None:
        self._tables = tables

    def land(self, batch: Batch) -> Appended:
        minutes, interesting, dead = self._tables
        now = datetime.fromtimestamp(batch.now_ms / 1000, UTC)
        held = to_requests(batch.frame).persist()

        def append(table: Table, step: Callable[[DataFrame], DataFrame]) -> Appended:
            def make_frame(offsets: Coverage) -> DataFrame:
                return step(held if offsets == batch.covered else to_requests(batch.rows_in(offsets)))

            return append_once(table, make_frame, token=batch.token, covered=batch.covered)

        try:
            append(dead, lambda requests: dead_requests(requests, now))
            append(
                interesting,
                lambda requests: to_interesting(
                    requests,
                    import_threshold_ms=self._settings.import_threshold_ms,
                    sampled_400s_percent=self._settings.sampled_400s_percent,
                ),
            )
            return append(
                minutes,
                lambda requests: to_minutes(requests, late_minutes=self._settings.late_minutes, ingest_time=now),
            )
        finally:
            held.unpersist()

    def replaceable(self) -> list[Replaceable]:
        # A minute's partial adds up many records: what one of them gave cannot be taken out again.
        return []
