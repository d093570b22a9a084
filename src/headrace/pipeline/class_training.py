"""A small Spark that loads what sessions load: `python -m headrace.pipeline.class_training FILE CLASS_PATH` leaves FILE behind.

Its queries pass the places that those of pipelines pass: a source in Python, a stream with a batch function, JSON, Arrow
through Python, Parquet. What they miss is loaded as ever.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.pipeline.class_archive import CLASS_PATH, JAVA_OPTIONS
from headrace.pipeline.session import open_session
from headrace.pipeline.settings import SparkSettings

_FORMAT: Final = "headrace_training"
_QUERY_SECONDS_MAX: Final = 120


class TrainingSource(DataSource):  # type: ignore[misc]
    """A record or two."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return "value BINARY, offset BIGINT, timestamp TIMESTAMP"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TrainingReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TrainingStream()


class TrainingReader(DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(2)]

    def read(self, partition: InputPartition) -> Iterator["object"]:
        yield from _records(partition)


class TrainingStream(DataSourceStreamReader):  # type: ignore[misc]
    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"offset": 2}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(index) for index in range(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator["object"]:
        yield from _records(partition)


def _records(partition: InputPartition) -> Iterator["object"]:
    # Imported by workers, which get this code and not this module.
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict(
        {
            "value": [b'{"id": 1, "name": "a"}'],
            "offset": [partition.value],
            "timestamp": pa.array([0], pa.timestamp("us", "UTC")),
        }
    )


def main() -> int:
    archive, class_path = sys.argv[1:]
    conf = {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={archive}" -XX:TieredStopAtLevel=1 -Xlog:cds*=off'}
    if class_path:
        conf[CLASS_PATH] = class_path
    spark = open_session(SparkSettings(master="local[2]", class_archive=False, conf=conf))
    java = spark.sparkContext._gateway.proc
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        _train(spark, Path(directory))
        spark.stop()
    # It ends, and writes the archive, when nobody can talk to it any more.
    java.stdin.close()
    return int(java.wait())


def _train(spark: SparkSession, directory: Path) -> None:
    spark.dataSource.register(TrainingSource)
    records = spark.read.format(_FORMAT).load()
    records.selectExpr("sum(length(value))").collect()
    _land(records, directory / "batch")
    stream = spark.readStream.format(_FORMAT).load()
    writer = stream.writeStream.foreachBatch(lambda frame, number: _land(frame, directory / f"stream-{number}"))
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(directory / "checkpoint")).start()
    query.awaitTermination(_QUERY_SECONDS_MAX)
    spark.read.parquet(str(directory / "batch")).createOrReplaceTempView("rows")
    spark.sql("SELECT name, count(*) FROM rows WHERE id > 0 GROUP BY ALL ORDER BY 2 DESC LIMIT 10").collect()


def _land(records: DataFrame, directory: Path) -> None:
    """As micro-batches are landed: parsed, kept while they are counted, through Python, into files."""
    parsed = records.selectExpr("from_json(CAST(value AS STRING), 'id BIGINT, name STRING') AS payload", "timestamp")
    rows = parsed.selectExpr("payload.*", "timestamp").where("id IS NOT NULL").persist()
    rows.groupBy("name").count().collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(str(directory))
    rows.unpersist()


if __name__ == "__main__":
    sys.exit(main())
