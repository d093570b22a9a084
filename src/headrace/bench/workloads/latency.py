"""W2: how long a record waits at a rate the broker can well sustain.

Open loop: records fall due by the clock, and wait from then until they are acknowledged (ack) and until a consumer in
another process has them (end to end). Client defaults, but for a linger of 1 ms.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.errors import LoadFailed
from headrace.bench.load.jobs import AnyJob, Latency, Outcome, PacedProduceJob, WatchJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import Scale
from headrace.bench.topics import create_topics, delete_topics, fresh_name

_PARTITIONS: Final = 16
_RECORD_BYTES: Final = 1024
RATES: Final = {"10 MiB/s": 10_240, "1,000 records/s": 1_000}
_GRACE_SECONDS: Final = 30.0


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="w2", name=name, measure=partial(_measure, records_per_second=rate))
        for name, rate in RATES.items()
    ]


WORKLOAD: Final = Workload(
    name="w2",
    title="Latency at a fixed rate",
    question="How long until a 1 KiB record is acknowledged, and until a consumer has it?",
    cases=_cases,
    rounds=lambda scale: scale.latency_rounds,
)


def _measure(broker: Broker, scale: Scale, *, records_per_second: int) -> dict[str, float]:
    tail = measure_tail(broker, scale, records_per_second=records_per_second)
    return {
        "ack_p50": tail.ack.p50,
        "ack_p99": tail.ack.p99,
        "ack_p999": tail.ack.p999,
        "end_to_end_p50": tail.end_to_end.p50,
        "end_to_end_p99": tail.end_to_end.p99,
        "broker_cpu_share": tail.broker_cpu_share,
    }


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """How long records waited, what that took, and what was done beside."""

    ack: Latency
    end_to_end: Latency
    broker_cpu_share: float
    beside: list[Outcome]


def measure_tail(
    broker: Broker,
    scale: Scale,
    *,
    records_per_second: int,
    beside: Sequence[AnyJob] = (),
    config: Mapping[str, str] | None = None,
) -> Tail:
    """One window over a topic of its own with this `config`, and the jobs `beside` under way all the time."""
    topic = fresh_name("w2")
    create_topics(broker.bootstrap, [topic], partitions=_PARTITIONS, config=config)
    try:
        settle(broker)
        produce = PacedProduceJob(
            bootstrap=broker.bootstrap,
            topics=[topic],
            record_bytes=_RECORD_BYTES,
            records_per_second=records_per_second,
            warm_up_seconds=scale.warm_up_seconds,
            seconds=scale.window_seconds,
        )
        run_seconds = scale.warm_up_seconds + scale.window_seconds
        watch = WatchJob(
            bootstrap=broker.bootstrap,
            topic=topic,
            partitions=_PARTITIONS,
            count=int(records_per_second * run_seconds),
            seconds_max=run_seconds + _GRACE_SECONDS,
        )
        meter = CpuMeter(broker)
        produced, watched, *others = run_load([produce, watch, *beside], on_begin=meter.begin)
        cpu_seconds = meter.seconds()
    finally:
        delete_topics(broker.bootstrap, [topic])
    return Tail(
        ack=latency_of(produced),
        end_to_end=latency_of(watched),
        broker_cpu_share=100 * cpu_seconds / run_seconds,
        beside=others,
    )


def latency_of(outcome: Outcome) -> Latency:
    if outcome.latency is None:
        raise LoadFailed("no record fell into the measured window")
    return outcome.latency
