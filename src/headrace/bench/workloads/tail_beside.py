"""W4: what those who write and read the tail feel of those who catch up.

W2's load twice on one broker: alone, and while W3's consumers go through the backlog over and over. The consumers of
the backlog stand behind everybody else in line for a core, and the store has the loopback for a network: on a machine
this small the question would otherwise be how the scheduler shares two cores among seven processes. What the broker
does for them, it does in its one process and at its usual priority.

How much of the difference is the broker's shows a third window: the same bytes are read from the store at the same rate, by
a process that is neither broker nor consumer.
"""

from functools import partial
from typing import Final

from headrace.bench.case import Case, Workload
from headrace.bench.load.jobs import GetJob, ScanJob
from headrace.bench.rivals import Broker
from headrace.bench.scale import MIB, Scale
from headrace.bench.workloads.backlog import RIVALS, SHARES, TOPIC, ensure_backlog
from headrace.bench.workloads.latency import RATES, measure_tail

_NICENESS: Final = 19
_RANGE_BYTES: Final = 4 * MIB
"""Of one GET, as the broker asks for a backlog."""


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="w4", name=name, measure=partial(_measure, records_per_second=rate))
        for name, rate in RATES.items()
    ]


WORKLOAD: Final = Workload(
    name="w4",
    title="The tail beside catch-up",
    question="How much longer do W2's records wait while W3's consumers read the backlog?",
    cases=_cases,
    rounds=lambda scale: scale.latency_rounds,
    rivals=RIVALS,
)


def _measure(broker: Broker, scale: Scale, *, records_per_second: int) -> dict[str, float]:
    ensure_backlog(broker, scale)
    seconds = scale.warm_up_seconds + scale.window_seconds
    readers = [
        ScanJob(bootstrap=broker.bootstrap, topic=TOPIC, partitions=share, seconds=seconds, niceness=_NICENESS)
        for share in SHARES
    ]
    alone = measure_tail(broker, scale, records_per_second=records_per_second)
    busy = measure_tail(broker, scale, records_per_second=records_per_second, beside=readers)
    catch_up_rate = sum(one.bytes for one in busy.beside) / seconds
    getter = GetJob(
        bootstrap=broker.store_address, range_bytes=_RANGE_BYTES, bytes_per_second=catch_up_rate, seconds=seconds
    )
    store_busy = measure_tail(broker, scale, records_per_second=records_per_second, beside=[getter])
    return {
        "ack_p99_alone": alone.ack.p99,
        "ack_p99": busy.ack.p99,
        "ack_p99_ratio": busy.ack.p99 / alone.ack.p99,
        "ack_p99_store": store_busy.ack.p99,
        "end_to_end_p99_alone": alone.end_to_end.p99,
        "end_to_end_p99": busy.end_to_end.p99,
        "end_to_end_p99_ratio": busy.end_to_end.p99 / alone.end_to_end.p99,
        "catch_up_rate": catch_up_rate / MIB,
        "broker_cpu_share": busy.broker_cpu_share,
    }
