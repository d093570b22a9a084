"""`replay-dlq`: judge dead letters again after a fix; what passes now goes to the table, the rest stays.

Dying anywhere must neither lose nor repeat a row, over two tables. So the files to be replayed are first written down in the
dead letters' own properties. Rows that pass are committed under a name made of those files; then the files are swapped for
what still fails and the note is cleared, in one commit. A run that finds a note goes on with it.
"""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import Clock
from headrace.pipeline.failpoints import reach
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.steps.typed import accepted, dead_letters, judge
from headrace.pipeline.tables.committing import append_once
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.iceberg import IcebergTable, live_files
from headrace.pipeline.tables.port import CommitToken

PENDING: Final = "headrace.replay.pending"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    accepted: int
    still_dead: int


def replay_dead_letters(
    spark: SparkSession, silver: Silver, table: IcebergTable, dead_table: IcebergTable, clock: Clock
) -> Replayed:
    dead_table.refresh()
    files = {data_file.file_path: data_file for data_file in live_files(dead_table.handle)}
    paths = _pending(dead_table) or sorted(files)
    if not paths:
        return Replayed(accepted=0, still_dead=0)
    dead_table.set_properties({PENDING: msgspec.json.encode(paths).decode()})
    reach("replay noted")

    letters = _letters(spark, dead_table, paths).persist()
    try:
        judged = judge(letters, silver.shape)
        token = CommitToken(f"{silver.name}_replay:{sha256(' '.join(paths).encode()).hexdigest()[:16]}", 0)
        good = append_once(table, lambda _: accepted(judged, silver.shape), token=token, covered=Coverage())
        reach("replay accepted")
        failed_time = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        remaining = dead_table.write(dead_letters(judged, failed_time))
        dead_table.replace(remaining, removed=[files[path] for path in paths], properties={PENDING: "[]"})
        return Replayed(accepted=good.record_count, still_dead=remaining.record_count)
    finally:
        letters.unpersist()


def is_replay_pending(table: IcebergTable) -> bool:
    """While it is, the noted files must stay what they are."""
    return bool(_pending(table))


def _pending(dead_table: IcebergTable) -> list[str]:
    text = dead_table.handle.properties.get(PENDING, "[]")
    return msgspec.json.decode(text, type=list[str])


def _letters(spark: SparkSession, dead_table: IcebergTable, paths: list[str]) -> DataFrame:
    """The noted letters in the shape of records."""
    timestamp = F.coalesce("timestamp", F.timestamp_millis("timestamp_absurd_ms")).alias("timestamp")
    return dead_table.read_paths(spark, paths).select(
        "key", "value", "topic", "partition", "offset", timestamp, F.lit(0).alias("timestampType"), "headers"
    )
