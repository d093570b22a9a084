"""One Spark session per test process, small enough for two cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pyspark.sql import SparkSession
from tests.support.object_stores import CREDENTIALS

from headrace.pipeline.session import open_session
from headrace.pipeline.settings import SparkSettings

SPARK = SparkSettings(
    master="local[2]",
    driver_memory="1g",
    conf={
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Compiling plans costs more than running them over a handful of rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # Nor does a session of seconds win back what the second compiler and a parallel collector cost.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)

ONE_CORE = msgspec.structs.replace(SPARK, master="local[1]", conf={**SPARK.conf, "spark.sql.shuffle.partitions": "1"})
"""For processes that live for a micro-batch or two: every core more is one more Python worker to start."""


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    # Workers inherit the environment of the JVM's start, and credentials come from nowhere else.
    os.environ.update(CREDENTIALS)
    session = open_session(SPARK, application="headrace tests")
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
