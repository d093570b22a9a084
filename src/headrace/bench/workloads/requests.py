"""W8: what one request costs the broker.

Raw frames in a closed loop, so that the batches are exactly as named: a single record of 100 B on 200 connections,
then produce of 16 KiB and 1 MiB, and fetch of 1 MiB. CPU per request is the figure; wall time has the client in it.
"""

from functools import partial
from typing import Final

import msgspec

from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.load.jobs import FetchRequestsJob, Outcome, ProduceRequestsJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import MIB, Scale
from headrace.bench.topics import create_topics, delete_topics, fresh_name
from headrace.bench.workloads.latency import latency_of

_PARTITIONS: Final = 16
_RECORDS_PER_MIB: Final = 1014
"""Records of 1 KiB that fit, with their lengths, into Kafka's default limit of 1,048,588 bytes per batch."""

_FETCH_PARTITIONS: Final = 4
_FETCH_BATCHES_PER_PARTITION: Final = 32


class _Produce(msgspec.Struct, frozen=True, kw_only=True):
    connections: int
    record_bytes: int
    records_per_batch: int


_PRODUCES: Final = {
    "produce 1 x 100 B": _Produce(connections=200, record_bytes=100, records_per_batch=1),
    "produce 16 KiB": _Produce(connections=32, record_bytes=1024, records_per_batch=16),
    "produce 1 MiB": _Produce(connections=4, record_bytes=1024, records_per_batch=_RECORDS_PER_MIB),
}


def _cases(_: Scale) -> list[Case]:
    produces = [
        Case(workload="w8", name=name, measure=partial(_measure_produce, shape=shape))
        for name, shape in _PRODUCES.items()
    ]
    return [*produces, Case(workload="w8", name="fetch 1 MiB", measure=_measure_fetch)]


WORKLOAD: Final = Workload(
    name="w8",
    title="The price of a request",
    question="What does one request cost the broker in CPU time?",
    cases=_cases,
)


def _measure_produce(broker: Broker, scale: Scale, *, shape: _Produce) -> dict[str, float]:
    topic = fresh_name("w8-produce")
    create_topics(broker.bootstrap, [topic], partitions=_PARTITIONS)
    try:
        settle(broker)
        job = ProduceRequestsJob(
            bootstrap=broker.bootstrap,
            topic=topic,
            partitions=_PARTITIONS,
            connections=shape.connections,
            record_bytes=shape.record_bytes,
            records_per_batch=shape.records_per_batch,
            warm_up_seconds=scale.warm_up_seconds,
            seconds=scale.request_seconds,
        )
        meter = CpuMeter(broker)
        (outcome,) = run_load([job], on_begin=meter.begin)
        return _metrics(outcome, meter.seconds_when_quiet())
    finally:
        delete_topics(broker.bootstrap, [topic])


def _measure_fetch(broker: Broker, scale: Scale) -> dict[str, float]:
    topic = fresh_name("w8-fetch")
    create_topics(broker.bootstrap, [topic], partitions=_FETCH_PARTITIONS)
    try:
        settle(broker)
        job = FetchRequestsJob(
            bootstrap=broker.bootstrap,
            topic=topic,
            partitions=_FETCH_PARTITIONS,
            connections=_FETCH_PARTITIONS,
            batches_per_partition=_FETCH_BATCHES_PER_PARTITION,
            record_bytes=1024,
            records_per_batch=_RECORDS_PER_MIB,
            warm_up_seconds=scale.warm_up_seconds,
            seconds=scale.request_seconds,
        )
        meter = CpuMeter(broker)
        (outcome,) = run_load([job], on_begin=meter.begin)
        return _metrics(outcome, meter.seconds())
    finally:
        delete_topics(broker.bootstrap, [topic])


def _metrics(outcome: Outcome, cpu_seconds: float) -> dict[str, float]:
    return {
        "request_rate": outcome.count / outcome.seconds,
        "request_cpu": cpu_seconds / outcome.count * 1e6,
        "request_p99": latency_of(outcome).p99,
        "payload_rate": outcome.bytes / outcome.seconds / MIB,
    }
