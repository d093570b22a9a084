"""`durability=object`: how long a record waits that is acknowledged only once its object is in the bucket.

W2's load at 10 MiB/s on such a topic. Whatever the broker does, a record waits for one PUT, held back for 60-120 ms, and
for its commit; what it waits beyond that is gathering, and PUTs that were under way before it came.
"""

from functools import partial
from typing import Final

from headrace.bench.bill import read_bill
from headrace.bench.case import Case, Workload
from headrace.bench.rivals import Broker, HeadraceOnBucket
from headrace.bench.scale import Scale
from headrace.bench.workloads.latency import RATES, measure_tail

_RATE: Final = "10 MiB/s"
_RIVALS: Final = (HeadraceOnBucket(fsync="every group commit (WAL), then PUT and commit"),)


def _cases(_: Scale) -> list[Case]:
    return [Case(workload="object", name=_RATE, measure=partial(_measure, records_per_second=RATES[_RATE]))]


WORKLOAD: Final = Workload(
    name="object",
    title="Acknowledged by the bucket",
    question=(
        "How long until a 1 KiB record of a `durability=object` topic is acknowledged, and until a consumer has it? "
        f"SeaweedFS, replies held back: {_RIVALS[0].delays.describe()}."
    ),
    cases=_cases,
    rounds=lambda scale: scale.latency_rounds,
    rivals=_RIVALS,
)


def _measure(broker: Broker, scale: Scale, *, records_per_second: int) -> dict[str, float]:
    before = read_bill(broker)
    tail = measure_tail(broker, scale, records_per_second=records_per_second, config={"durability": "object"})
    bill = read_bill(broker) - before
    return {
        "ack_p50": tail.ack.p50,
        "ack_p99": tail.ack.p99,
        "ack_p999": tail.ack.p999,
        "end_to_end_p50": tail.end_to_end.p50,
        "end_to_end_p99": tail.end_to_end.p99,
        "put_rate": bill.puts / (scale.warm_up_seconds + scale.window_seconds),
        "broker_cpu_share": tail.broker_cpu_share,
    }
