"""W10: how fast Spark reads what was uploaded, and a backfill of it into a typed table.

1 KiB of JSON per record, lz4, 16 partitions. Spark reads headrace's bucket with the brokers stopped, and Apache Kafka
through its own connector with the broker running, each in a fresh process: starting Spark is part of the time, as it is
for whoever waits. The sum of the lengths must be that of the records, so every record was decoded and its CRC verified.
"""

import os
import shutil
from functools import partial
from typing import Final

from headrace.bench.bill import await_uploaded
from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.errors import LoadFailed
from headrace.bench.load.orders import ORDER_BYTES, produce_orders
from headrace.bench.load.spark import BackfillJob, ScanJob, SparkOutcome, keep_classes, run_spark
from headrace.bench.maven import kafka_connector_jars
from headrace.bench.rivals import ApacheKafka, Broker, Headrace
from headrace.bench.scale import GIB, MIB, Scale
from headrace.bench.topics import count_records, create_topics, has_topic

TOPIC: Final = "orders"
SCAN: Final = "sum(length(value))"
SCAN_VALUES: Final = "sum(length(value)), only that column"
BACKFILL: Final = "backfill into ten typed columns"

_PARTITIONS: Final = 16
_AS_SHIPPED: Final = {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}
"""The JVM as Spark starts it by itself: headrace's options for it are part of headrace."""
_RIVALS: Final = (Headrace(), ApacheKafka())
_OURS: Final = _RIVALS[0].name


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="w10", name=SCAN, measure=_measure_scan),
        # Spark's Kafka source has no such choice, and no tables of its own.
        Case(workload="w10", name=SCAN_VALUES, measure=partial(_measure_scan, schema="value BINARY"), door="rustlog"),
        Case(workload="w10", name=BACKFILL, measure=_measure_backfill, door="rustlog"),
    ]


WORKLOAD: Final = Workload(
    name="w10",
    title="Spark reads the log",
    question=(
        "How fast does a fresh Spark process read 1 KiB JSON records (lz4, 16 partitions) from headrace's bucket, "
        "brokers stopped, and from Apache Kafka through Spark's own connector? And land them in a typed table?"
    ),
    cases=_cases,
    rounds=lambda scale: scale.fresh_rounds,
    rivals=_RIVALS,
)


def _measure_scan(broker: Broker, scale: Scale, *, schema: str | None = None) -> dict[str, float]:
    keep_classes()
    count = _ensure_orders(broker, scale)
    bounds = {"subscribe": TOPIC, "startingOffsets": "earliest", "endingOffsets": "latest"}
    if broker.name == _OURS:
        outcome = _run_without(broker, ScanJob(source="headrace", options=bounds | _bucket(broker), schema=schema))
        broker_cpu = 0.0
    else:
        jars = [str(path) for path in kafka_connector_jars()]
        settle(broker)
        meter = CpuMeter(broker)
        meter.begin()
        options = bounds | {"kafka.bootstrap.servers": broker.bootstrap}
        outcome = run_spark(ScanJob(source="kafka", options=options, jars=jars, conf=_AS_SHIPPED))
        broker_cpu = meter.seconds()
    if outcome.found != count * ORDER_BYTES:
        raise LoadFailed(f"{count} records of {ORDER_BYTES} bytes make another sum than {outcome.found}")
    return _metrics(outcome, count, broker_cpu)


def _measure_backfill(broker: Broker, scale: Scale) -> dict[str, float]:
    keep_classes()
    count = _ensure_orders(broker, scale)
    directory = broker.directory / "tables"
    shutil.rmtree(directory, ignore_errors=True)
    job = BackfillJob(bucket=_bucket(broker)["bucket"], topic=TOPIC, directory=str(directory))
    outcome = _run_without(broker, job)
    if outcome.found != count:
        raise LoadFailed(f"{outcome.found} rows landed of {count} records")
    return _metrics(outcome, count, 0.0)


def _run_without(broker: Broker, job: ScanJob | BackfillJob) -> SparkOutcome:
    """With the broker stopped: what is not in the bucket is not there."""
    broker.stop()
    try:
        os.sync()
        return run_spark(job)
    finally:
        broker.start()


def _ensure_orders(broker: Broker, scale: Scale) -> int:
    """Fill the topic once per broker; how many records it has."""
    if not has_topic(broker.bootstrap, TOPIC):
        create_topics(broker.bootstrap, [TOPIC], partitions=_PARTITIONS)
        produce_orders(broker.bootstrap, TOPIC, partitions=_PARTITIONS, count=scale.scan_bytes // ORDER_BYTES)
        if broker.name == _OURS:
            await_uploaded(broker)
    count = count_records(broker.bootstrap, TOPIC, range(_PARTITIONS))
    if count != scale.scan_bytes // ORDER_BYTES:
        raise LoadFailed(f"the broker has {count} records of {scale.scan_bytes // ORDER_BYTES}")
    return count


def _bucket(broker: Broker) -> dict[str, str]:
    return {"bucket": str(broker.directory / "data" / "objects")}


def _metrics(outcome: SparkOutcome, count: int, broker_cpu: float) -> dict[str, float]:
    size = count * ORDER_BYTES
    again = {"read_rate_again": size / MIB / outcome.again_seconds} if outcome.again_seconds else {}
    return again | {
        "read_rate": size / MIB / outcome.total_seconds,
        "read_rate_started": size / MIB / outcome.work_seconds,
        "session_seconds": outcome.total_seconds - outcome.work_seconds,
        "spark_cpu": outcome.cpu_seconds / (size / GIB),
        "read_broker_cpu": broker_cpu / (size / GIB),
    }
