"""W1: how much a broker takes and gives at full speed.

Records of 1 KiB over 16 partitions, acks=all, in batches of three sizes; then the same records are read back, twice. The
second reading is what every further group of consumers costs: whatever a broker does for the first one only, it has done. The
broker's own count of records is compared with the producers' before a figure counts.
"""

from functools import partial
from typing import Final

from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.errors import LoadFailed
from headrace.bench.load.jobs import ConsumeJob, Outcome, ProduceJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import GIB, MIB, Scale
from headrace.bench.topics import count_records, create_topics, delete_topics, fresh_name

PARTITIONS: Final = 16
_RECORD_BYTES: Final = 1024
BATCHES: Final = {"16 KiB batches": 16 * 1024, "128 KiB batches": 128 * 1024, "1 MiB batches": MIB}


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="w1", name=name, measure=partial(_measure, batch_bytes=batch_bytes))
        for name, batch_bytes in BATCHES.items()
    ]


WORKLOAD: Final = Workload(
    name="w1",
    title="Full speed",
    question="How much does a broker take and give: 1 KiB records, 16 partitions, acks=all?",
    cases=_cases,
)


def _measure(broker: Broker, scale: Scale, *, batch_bytes: int) -> dict[str, float]:
    topic = fresh_name("w1")
    create_topics(broker.bootstrap, [topic], partitions=PARTITIONS)
    try:
        settle(broker)
        produced, produce_cpu = _produce(broker, scale, topic, batch_bytes)
        total = sum(one.total for one in produced)
        consumed, consume_cpu = _consume(broker, scale, topic, total)
        again, again_cpu = _consume(broker, scale, topic, total)
    finally:
        delete_topics(broker.bootstrap, [topic])
    produced_bytes, consumed_bytes = (sum(one.bytes for one in outcomes) for outcomes in (produced, consumed))
    return {
        "produce_rate": produced_bytes / MIB / max(one.seconds for one in produced),
        "produce_cpu": produce_cpu / (produced_bytes / GIB),
        "consume_rate": consumed_bytes / MIB / max(one.seconds for one in consumed),
        "consume_cpu": consume_cpu / (consumed_bytes / GIB),
        "consume_again_rate": consumed_bytes / MIB / max(one.seconds for one in again),
        "consume_again_cpu": again_cpu / (consumed_bytes / GIB),
    }


def _produce(broker: Broker, scale: Scale, topic: str, batch_bytes: int) -> tuple[list[Outcome], float]:
    job = produce_job(broker, scale, topic, batch_bytes)
    meter = CpuMeter(broker)
    outcomes = run_load([job] * scale.producers, on_begin=meter.begin)
    return outcomes, meter.seconds_when_quiet()


def produce_job(broker: Broker, scale: Scale, topic: str, batch_bytes: int) -> ProduceJob:
    """One producer's share."""
    return ProduceJob(
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        record_bytes=_RECORD_BYTES,
        batch_bytes=batch_bytes,
        warm_up_count=scale.warm_up_bytes // scale.producers // _RECORD_BYTES,
        count=scale.produce_bytes // scale.producers // _RECORD_BYTES,
    )


def _consume(broker: Broker, scale: Scale, topic: str, total: int) -> tuple[list[Outcome], float]:
    shares = [list(range(first, PARTITIONS, scale.consumers)) for first in range(scale.consumers)]
    counts = [count_records(broker.bootstrap, topic, share) for share in shares]
    if sum(counts) != total:
        raise LoadFailed(f"{total} records were acknowledged, the broker has {sum(counts)}")
    jobs = [
        ConsumeJob(bootstrap=broker.bootstrap, topic=topic, partitions=share, count=count)
        for share, count in zip(shares, counts, strict=True)
    ]
    meter = CpuMeter(broker)
    outcomes = run_load(jobs, on_begin=meter.begin)
    return outcomes, meter.seconds()
