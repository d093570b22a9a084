"""`replay-dlq`: judge dead letters again after a fix; what passes now goes to the table, the rest stays.

Dying anywhere must neither lose nor repeat a row, over two tables. So the files to be replayed are first written down in the
dead letters' own properties. Rows that pass are committed under a name made of those files; then the files are swapped for
what still fails and the note is cleared, in one commit. A run that finds a note whose rows have landed first takes their
letters out, by the records they name: the rules may have changed since, so judging them again would not tell.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import Clock
from headrace.errors import Concurrent
from headrace.pipeline.failpoints import reach
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.steps.typed import accepted, dead_letters, judge
from headrace.pipeline.tables.committing import ATTEMPTS_MAX, append_once
from headrace.pipeline.tables.coverage import Coverage, Range
from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.port import CommitToken, TableChanged
from headrace.pipeline.tables.scanning import PlannedFile, plan_files

PENDING: Final = "headrace.replay.pending"
_RECORD: Final = {"topic": "_topic", "partition": "_topic_partition", "offset": "_offset", "timestamp": "_timestamp"}
"""What names a record among dead letters and among rows. A topic that was created again has the same offsets, and other times."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    accepted: int
    still_dead: int


def replay_dead_letters(
    spark: SparkSession, silver: Silver, table: IcebergTable, dead_table: IcebergTable, clock: Clock
) -> Replayed:
    replay = _Replay(spark, silver, table, dead_table, clock)
    for _ in range(ATTEMPTS_MAX):
        try:
            replay.finish_interrupted()
            still_dead = replay.run()
        except TableChanged:
            # Somebody deleted or rewrote dead letters meanwhile. What was accepted has its note.
            continue
        return Replayed(accepted=replay.accepted_count, still_dead=still_dead)
    raise Concurrent(f"{dead_table.name} changed under {ATTEMPTS_MAX} attempts to replay it")


def is_replay_pending(table: IcebergTable) -> bool:
    """While it is, the noted files should stay what they are."""
    return bool(_pending(table))


class _Replay:
    def __init__(
        self, spark: SparkSession, silver: Silver, table: IcebergTable, dead_table: IcebergTable, clock: Clock
    ) -> None:
        self._spark = spark
        self._silver = silver
        self._table = table
        self._dead_table = dead_table
        self._clock = clock
        self.accepted_count = 0

    def finish_interrupted(self) -> None:
        """Take out the letters whose rows an earlier run has landed, if it died before it did so itself."""
        self._dead_table.refresh()
        self._table.refresh()
        noted = _pending(self._dead_table)
        if not noted or not self._table.has_committed(self._token(noted)):
            return
        live = plan_files(self._dead_table.handle)
        files = [task for task in live if task.file.file_path in noted]
        if len(files) < len(noted):
            files = live  # Another engine has rewritten them: the letters may be anywhere.
        letters = self._dead_table.read_files(self._spark, files)
        remaining = self._dead_table.write(self._not_landed(letters))
        self._dead_table.replace(remaining, removed=files, properties={PENDING: "[]"})

    def run(self) -> int:
        """Judge all letters. Gives back how many are still dead."""
        self._dead_table.refresh()
        files = plan_files(self._dead_table.handle)
        if not files:
            return 0
        paths = sorted(task.file.file_path for task in files)
        self._dead_table.set_properties({PENDING: msgspec.json.encode(paths).decode()})
        reach("replay noted")
        letters = self._records(files).persist()
        try:
            shape = self._silver.shape
            judged = judge(letters, shape)
            good = append_once(
                self._table, lambda _: accepted(judged, shape), token=self._token(paths), covered=Coverage()
            )
            self.accepted_count += good.record_count
            reach("replay accepted")
            failed_time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            remaining = self._dead_table.write(dead_letters(judged, failed_time))
            self._dead_table.replace(remaining, removed=files, properties={PENDING: "[]"})
            return remaining.record_count
        finally:
            letters.unpersist()

    def _token(self, paths: Sequence[str]) -> CommitToken:
        return CommitToken(f"{self._silver.name}_replay:{sha256(' '.join(paths).encode()).hexdigest()[:16]}", 0)

    def _records(self, files: Sequence[PlannedFile]) -> DataFrame:
        """Letters in the shape of records."""
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_absurd_ms", "headers")
        timestamp = F.coalesce("timestamp", F.timestamp_millis("timestamp_absurd_ms")).alias("timestamp")
        letters = self._dead_table.read_files(self._spark, files, columns)
        return letters.select(*columns[:5], timestamp, F.lit(0).alias("timestampType"), "headers")

    def _not_landed(self, letters: DataFrame) -> DataFrame:
        bounds = letters.agg(F.min("offset"), F.max("offset")).collect()[0]
        if bounds[0] is None:
            return letters
        files = self._table.files_with(_RECORD["offset"], [Range(bounds[0], bounds[1] + 1)])
        landed = self._table.read_files(self._spark, files, list(_RECORD.values()))
        is_same = F.lit(True)
        for name, row_name in _RECORD.items():
            is_same = is_same & F.col(name).eqNullSafe(F.col(row_name))
        return letters.join(landed, is_same, "left_anti")


def _pending(dead_table: IcebergTable) -> list[str]:
    text = dead_table.handle.properties.get(PENDING, "[]")
    return msgspec.json.decode(text, type=list[str])
