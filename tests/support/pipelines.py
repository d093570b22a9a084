"""Pipelines over a bucket and a warehouse in a temporary directory."""

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.bucket import LocalBucket

from headrace.pipeline.queries import open_tables, start_query
from headrace.pipeline.settings import PipelineConfig, parse_config
from headrace.pipeline.tables.iceberg import IcebergTable


def config_for(bucket: LocalBucket, tmp_path: Path, pipelines: dict[str, dict[str, object]]) -> PipelineConfig:
    return parse_config({"source": {"bucket": bucket.url}, "pipelines": pipelines}, base=tmp_path)


def catch_up(spark: SparkSession, config: PipelineConfig, name: str) -> None:
    """Run the pipeline until it has seen everything, as a fresh process would."""
    for is_last in (False, False, True):
        try:
            start_query(spark, config, name, is_available_now=True).awaitTermination()
            return
        except StreamingQueryException as error:
            # Spark gives a Python worker ten seconds to start, which a busy machine may need. A runner tries again too.
            if is_last or "failed to connect back" not in str(error):
                raise


def table(config: PipelineConfig, name: str) -> IcebergTable:
    return open_tables(config).open(name)


def rows(spark: SparkSession, config: PipelineConfig, name: str) -> DataFrame:
    return table(config, name).read(spark)


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
