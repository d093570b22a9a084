"""Pipelines over a bucket and a warehouse in a temporary directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.bucket import LocalBucket
from tests.support.node import eventually

from headrace.pipeline.queries import open_tables, start_query
from headrace.pipeline.settings import PipelineConfig, parse_config
from headrace.pipeline.tables.iceberg import IcebergTable

STARTS_MAX: Final = 5
SECONDS_MAX: Final = 60.0

T = TypeVar("T")


def config_for(bucket: LocalBucket, tmp_path: Path, pipelines: dict[str, dict[str, object]]) -> PipelineConfig:
    return parse_config({"source": {"bucket": bucket.url}, "pipelines": pipelines}, base=tmp_path)


def catch_up(spark: SparkSession, config: PipelineConfig, name: str) -> None:
    """Run the pipeline until it has seen everything, as a fresh process would."""
    patiently(lambda: start_query(spark, config, name, is_available_now=True).awaitTermination())


def patiently(run: Callable[[], T]) -> T:
    """Run a query, and again where Spark did not wait for a Python worker of its own.

    It gives the worker of a stream ten seconds to start, which a busy machine may need. A runner tries again too.
    """
    for _ in range(STARTS_MAX - 1):
        try:
            return run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    return run()


def table(config: PipelineConfig, name: str) -> IcebergTable:
    return open_tables(config).open(name)


def rows(spark: SparkSession, config: PipelineConfig, name: str) -> DataFrame:
    return table(config, name).read(spark)


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """All that a reader of committed records sees once every transaction has ended."""
    await_markers(bootstrap, topic, partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{topic} does not end"
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


def await_markers(bootstrap: str, topic: str, partitions: int) -> None:
    """A commit is answered when it is decided; its markers follow, and until then its records are not to be seen."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}

    def ends(level: IsolationLevel) -> list[int]:
        found = admin.list_offsets(latest, isolation_level=level)
        return [found[place].result(SECONDS_MAX).offset for place in latest]

    eventually(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        SECONDS_MAX,
        f"a transaction in {topic} does not end",
    )
