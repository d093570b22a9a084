"""Mistakes that only Spark notices: each is said in one line, with what to do."""

import logging
from io import StringIO
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for

from headrace.cli import spark as cli_spark
from headrace.cli.commands.sql import _plan
from headrace.errors import Invalid, NotFound, UnsupportedOperation
from headrace.pipeline.checkpoint import require_file_system
from headrace.pipeline.explain import brief
from headrace.pipeline.payload_schema import payload_shape
from headrace.pipeline.settings import SilverSettings, SparkSettings


@pytest.mark.parametrize(
    ("location", "remedy"),
    [
        ("s3a://bucket/checkpoints", r'spark\.jars\.packages: "org\.apache\.hadoop:hadoop-aws:3'),
        ("s3://bucket/checkpoints", r"write s3a:// instead of s3://.*hadoop-aws:3"),
        ("gs://bucket/checkpoints", r"give it the jar of that file system"),
    ],
)
def test_a_checkpoint_that_spark_has_no_jar_for_comes_with_the_jars_name(
    spark: SparkSession, location: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedOperation, match=remedy):
        require_file_system(spark, location)


def test_a_checkpoint_on_disk_needs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    require_file_system(spark, str(tmp_path))
    require_file_system(spark, f"file://{tmp_path}")


def test_a_schema_that_is_no_ddl_is_shown_with_an_example(spark: SparkSession) -> None:
    with pytest.raises(Invalid, match="'id: BIGINT NULLL' is no list of columns as `id BIGINT NOT NULL"):
        payload_shape(SilverSettings(subscribe="a", table="b.c", schema="id: BIGINT NULLL"))


def test_a_name_without_backticks_is_recognised(spark: SparkSession) -> None:
    with pytest.raises(NotFound, match=r"names with a dot stand in backticks: `topic\.orders`"):
        _plan(spark, "select * from silver.orders")


def test_a_wrong_column_is_said_without_the_stacks_of_two_languages(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logged = StringIO()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(logged)])
    monkeypatch.setattr(logger, "disabled", False)
    with pytest.raises(AnalysisException):
        spark.sql("select nope from (select 1 as there)")
    assert "nope" in logged.getvalue()
    logged.truncate(0)
    monkeypatch.setattr(cli_spark, "open_session", lambda settings: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    with pytest.raises(Invalid, match="nope"), cli_spark.spark_session(SparkSettings()) as session:
        session.sql("select nope from (select 1 as there)")
    assert logged.getvalue() == ""


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    config = config_for(bucket, tmp_path, {"bronze": {"kind": "bronze", "subscribe": "orderz"}})
    with pytest.raises(Exception, match="orderz") as failure:
        catch_up(spark, config, "bronze")
    assert brief(failure.value) == "no such topic: orderz"
