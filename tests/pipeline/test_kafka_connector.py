"""Spark's own Kafka connector, unmodified, against the Kafka door: batch, stream with restart, and sink."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.node import NodeProcess
from tests.support.pipelines import create_topic

from headrace.bench.errors import RivalUnavailable
from headrace.bench.maven import kafka_connector_jars

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = """
import sys
from pyspark.sql import SparkSession, functions as F

bootstrap, jars, work = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars).config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
kafka = {"kafka.bootstrap.servers": bootstrap}

rows = spark.range(500).selectExpr("string(id) AS key", "concat('v', id) AS value")
rows.write.format("kafka").options(**kafka, topic="in").save()
read = spark.read.format("kafka").options(**kafka, subscribe="in").load()
assert read.count() == 500
assert {row.value.decode() for row in read.select("value").collect()} == {f"v{i}" for i in range(500)}
by_time = spark.read.format("kafka").options(**kafka, subscribe="in", startingTimestamp="1").load()
assert by_time.count() == 500

def copy():
    query = (
        spark.readStream.format("kafka").options(**kafka, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="200")
        .load().select("key", "value")
        .writeStream.format("kafka").options(**kafka, topic="out").option("checkpointLocation", work + "/c")
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()

copy()
rows.limit(100).write.format("kafka").options(**kafka, topic="in").save()
copy()
out = spark.read.format("kafka").options(**kafka, subscribe="out").load()
assert out.count() == 600, out.count()

ours = spark.read.format("headrace").options(**kafka, subscribe="in").load()
theirs = spark.read.format("kafka").options(**kafka, subscribe="in").load()
assert ours.schema.simpleString() == theirs.schema.simpleString()
assert ours.exceptAll(theirs).count() == 0 and theirs.exceptAll(ours).count() == 0
spark.stop()
"""


def test_sparks_kafka_connector_works_against_the_kafka_door_and_agrees_with_ours(tmp_path: Path) -> None:
    try:
        jars = kafka_connector_jars()
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    node = NodeProcess(tmp_path / "node").start()
    try:
        for topic in ("in", "out"):
            create_topic(node.kafka, topic, 3)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, node.kafka, ",".join(map(str, jars)), str(tmp_path)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    finally:
        node.stop()
