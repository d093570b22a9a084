"""W5: what partitions cost that hardly anybody writes to.

A fresh broker gets its partitions in topics of at most 1,000, takes 10 MiB/s for a window, and is started again on
what it has: resident memory, time to the last leader, latency, and the objects it uploads, as the count grows.
"""

import time
from functools import partial
from typing import Final

from headrace.bench.bars import OURS
from headrace.bench.bill import await_uploaded, read_bill
from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.load.jobs import PacedProduceJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import MIB, Scale
from headrace.bench.topics import await_leaders, create_topics
from headrace.bench.workloads.latency import latency_of

_PARTITIONS_PER_TOPIC: Final = 1_000
_RECORD_BYTES: Final = 1024
_RECORDS_PER_SECOND: Final = 10_240


def _cases(scale: Scale) -> list[Case]:
    return [
        Case(
            workload="w5",
            name=f"{count:,} partition{'s' if count > 1 else ''}",
            measure=partial(_measure, count=count),
            is_fresh=True,
        )
        for count in scale.partition_counts
    ]


WORKLOAD: Final = Workload(
    name="w5",
    title="Many partitions",
    question="What do partitions cost in memory, start time, latency and objects, at 10 MiB/s in all?",
    cases=_cases,
    rounds=lambda scale: scale.fresh_rounds,
)


def _measure(broker: Broker, scale: Scale, *, count: int) -> dict[str, float]:
    per_topic = min(count, _PARTITIONS_PER_TOPIC)
    topics = [f"w5-{index}" for index in range(count // per_topic)]
    began = time.monotonic()
    for topic in topics:
        create_topics(broker.bootstrap, [topic], partitions=per_topic)
    create_seconds = time.monotonic() - began
    settle(broker)
    job = PacedProduceJob(
        bootstrap=broker.bootstrap,
        topics=topics,
        record_bytes=_RECORD_BYTES,
        records_per_second=_RECORDS_PER_SECOND,
        warm_up_seconds=scale.warm_up_seconds,
        seconds=scale.partition_seconds,
    )
    meter = CpuMeter(broker)
    objects_before = _count_objects(broker) if broker.name == OURS else 0.0
    (outcome,) = run_load([job], on_begin=meter.begin)
    cpu_seconds = meter.seconds()
    resident_bytes = broker.read_usage().resident_bytes
    objects = _count_objects(broker) - objects_before if broker.name == OURS else None
    began = time.monotonic()
    broker.restart()
    await_leaders(broker.bootstrap, topics, partitions=per_topic)
    run_seconds = scale.warm_up_seconds + scale.partition_seconds
    metrics = {
        "resident": resident_bytes / MIB,
        "create_seconds": create_seconds,
        "restart_seconds": time.monotonic() - began,
        "ack_p50": latency_of(outcome).p50,
        "ack_p99": latency_of(outcome).p99,
        "broker_cpu_share": 100 * cpu_seconds / run_seconds,
    }
    if objects is not None:
        metrics["object_rate"] = objects / run_seconds
    return metrics


def _count_objects(broker: Broker) -> float:
    """Data objects made so far, once all that was written is in them."""
    await_uploaded(broker)
    return read_bill(broker).objects
