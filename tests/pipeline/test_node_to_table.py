"""The whole way: a real client, a real node, its bucket and its live end, tables, and the checks that hold them together."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from tests.support.node import NodeProcess, eventually
from tests.support.pipelines import catch_up, rows

from headrace.clock import SystemClock
from headrace.pipeline.jobs.quality import FINDINGS_TABLE, check_all
from headrace.pipeline.jobs.report import write_report
from headrace.pipeline.settings import PipelineConfig, parse_config
from headrace.pipeline.views import create_views, plain_rows


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "node", {"tier.upload.interval.ms": 200}).start()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture
def config(node: NodeProcess, tmp_path: Path) -> PipelineConfig:
    return parse_config(
        {
            "source": {"bootstrap_servers": node.kafka, "bucket": str(node.data_dir / "objects")},
            "pipelines": {
                "bronze": {"kind": "bronze", "subscribePattern": ".*"},
                "orders": {
                    "kind": "silver",
                    "subscribe": "orders",
                    "table": "silver.orders",
                    "schema": "id BIGINT NOT NULL, price DOUBLE",
                    "expectations": {"has_price": {"that": "price > 0", "otherwise": "drop"}},
                },
            },
        },
        base=tmp_path,
    )


def create_topic(node: NodeProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(node: NodeProcess, topic: str, values: list[bytes]) -> dict[tuple[int, int], bytes]:
    """What was acknowledged, by partition and offset."""
    acknowledged: dict[tuple[int, int], bytes] = {}
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 5, "compression.type": "zstd"})
    for index, value in enumerate(values):
        producer.produce(
            topic,
            value=value,
            key=b"%d" % index,
            on_delivery=lambda error, message: acknowledged.update(
                {(message.partition(), message.offset()): message.value()}
            ),
        )
    assert producer.flush(120) == 0
    assert len(acknowledged) == len(values)
    return acknowledged


def landed(spark: SparkSession, config: PipelineConfig) -> dict[tuple[int, int], bytes]:
    found = rows(spark, config, "bronze.records").where("topic = 'orders'").select("partition", "offset", "value")
    collected = [((row.partition, row.offset), bytes(row.value)) for row in found.collect()]
    assert len(collected) == len(dict(collected)), "a record landed twice"
    return dict(collected)


def uploaded_all(node: NodeProcess, topic: str, count: int) -> bool:
    from headrace.pipeline.source.log import open_log
    from headrace.pipeline.source.options import parse_options

    bucket = {"bucket": str(node.data_dir / "objects"), "subscribe": topic}
    view = open_log(parse_options(bucket, is_stream=False)).view()
    return sum(partition.end - partition.log_start for partition in view.values()) == count


@pytest.mark.requirement("R3.116")
def test_what_was_acknowledged_is_in_the_table_and_again_from_the_bucket_alone(
    spark: SparkSession, node: NodeProcess, config: PipelineConfig, tmp_path: Path
) -> None:
    catch_up(spark, config, "bronze")
    create_topic(node, "orders", 3)
    expected = produce(node, "orders", [b'{"id": %d, "price": 1.5}' % i for i in range(2_000)])
    catch_up(spark, config, "bronze")
    assert landed(spark, config) == expected

    expected |= produce(node, "orders", [b'{"id": %d, "price": %d}' % (i, i % 2) for i in range(500)] + [b"poison"])
    catch_up(spark, config, "bronze")
    catch_up(spark, config, "orders")
    assert landed(spark, config) == expected
    assert rows(spark, config, "silver.orders").count() == 2_250
    reasons = rows(spark, config, "silver.orders_dead_letters").groupBy("reason").count().collect()
    assert {row.reason: row["count"] for row in reasons} == {"expectation not met": 250, "not JSON": 1}

    findings = check_all(spark, config, SystemClock())
    assert {(f.pipeline, f.check): f.status for f in findings if f.status == "fail"} == {}
    assert {f.check for f in findings} >= {"continuity", "raw", "duplicates", "dead letters", "nulls", "freshness"}
    assert rows(spark, config, FINDINGS_TABLE).count() == len(findings)

    query = "SELECT count(*) AS n FROM `topic.orders` WHERE get_json_object(value, '$.price') = 1.5"
    create_views(spark, config, query)
    found = spark.sql(query)
    assert plain_rows(found.collect(), found.schema) == [{"n": 2_000}]

    write_report(spark, config, tmp_path / "report.html", SystemClock())
    html = (tmp_path / "report.html").read_text()
    assert "Records landed per minute" in html
    assert "<polyline" in html or "<circle" in html

    # A clean stop uploads the rest; then nothing of headrace runs, and the bucket alone gives every record again.
    assert node.stop() == 0
    bucket = {"bucket": str(node.data_dir / "objects"), "subscribe": "orders"}
    eventually(lambda: uploaded_all(node, "orders", len(expected)), 60, "the log is not wholly in the bucket")
    again = spark.read.format("headrace").options(**bucket).load().select("partition", "offset", "value").collect()
    assert {(row.partition, row.offset): bytes(row.value) for row in again} == expected
