"""W3: how fast consumers catch up on what only the bucket has.

The broker has just been started: nothing is in its memory, and the backlog is eight times what its read cache holds.
Bytes served are those of the records' values alone, so that nothing the bucket gave besides counts as useful.
"""

from typing import Final

from headrace.bench.bill import read_bill
from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.load.jobs import ConsumeJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import GIB, MIB, Scale
from headrace.bench.workloads.backlog import CONSUMERS, RIVALS, SHARES, TOPIC, backlog_counts, ensure_backlog

_BLOCK_BYTES: Final = 4 * MIB


def _cases(_: Scale) -> list[Case]:
    return [Case(workload="w3", name=f"{CONSUMERS} consumers catch up", measure=_measure)]


WORKLOAD: Final = Workload(
    name="w3",
    title="Catching up from object storage",
    question=(
        "How fast do 4 consumers read a backlog that only a bucket has, through a read cache of 256 MiB? "
        f"SeaweedFS, replies held back: {RIVALS[0].delays.describe()}."
    ),
    cases=_cases,
    rivals=RIVALS,
)


def _measure(broker: Broker, scale: Scale) -> dict[str, float]:
    ensure_backlog(broker, scale)
    broker.restart()
    settle(broker)
    jobs = [
        ConsumeJob(bootstrap=broker.bootstrap, topic=TOPIC, partitions=share, count=count)
        for share, count in zip(SHARES, backlog_counts(broker), strict=True)
    ]
    meter = CpuMeter(broker)
    before = read_bill(broker)
    outcomes = run_load(jobs, on_begin=meter.begin)
    cpu_seconds = meter.seconds()
    bill = read_bill(broker) - before
    served_bytes = sum(one.bytes for one in outcomes)
    return {
        "consume_rate": served_bytes / MIB / max(one.seconds for one in outcomes),
        "consume_cpu": cpu_seconds / (served_bytes / GIB),
        "gets_per_block": bill.gets / (served_bytes / _BLOCK_BYTES),
        "got_per_served": bill.received_bytes / served_bytes,
    }
