"""W11: what object storage bills for a gigabyte, by the broker's own count of requests.

Each case has a fresh broker on a bucket, writes at a fixed rate until a few upload intervals have passed, waits until
everything is uploaded, and reads all of it back after a restart. Partitions share objects, so PUTs should follow the
rate and not the partitions; GETs follow how the records lie. Merging small objects is not in these figures: it starts
when ten of a partition's wait, and turns later reads of many small pieces into reads of few large ones.
"""

from functools import partial
from typing import Final

import msgspec

from headrace.bench import prices
from headrace.bench.bill import Bill, await_uploaded, read_bill
from headrace.bench.case import Case, Workload, settle
from headrace.bench.load.jobs import ConsumeJob, PacedProduceJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import MIB, Scale
from headrace.bench.topics import count_records, create_topics
from headrace.bench.workloads.backlog import RIVALS

_TOPIC: Final = "w11"
_RECORD_BYTES: Final = 1024
_UPLOAD_INTERVALS: Final = 2
_UPLOAD_INTERVAL_SECONDS: Final = 10.0
"""headrace's default: what a window has to be measured in."""


class _Load(msgspec.Struct, frozen=True):
    mib_per_second: int
    partitions: int

    @property
    def name(self) -> str:
        return f"{self.mib_per_second} MiB/s, {self.partitions:,} partitions"


_LOADS: Final = (_Load(1, 100), _Load(10, 16), _Load(10, 1_000))


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="w11", name=load.name, measure=partial(_measure, load=load), is_fresh=True) for load in _LOADS
    ]


WORKLOAD: Final = Workload(
    name="w11",
    title="What the bucket costs",
    question=(
        "How many requests are billed for a GiB, and what does a TiB cost that is written, read back once and kept for "
        f"a month? List prices of {prices.PRICES_FROM}; the last column is computed for three copies on disks."
    ),
    cases=_cases,
    rounds=lambda _: 1,
    rivals=RIVALS,
)


def _measure(broker: Broker, _: Scale, *, load: _Load) -> dict[str, float]:
    create_topics(broker.bootstrap, [_TOPIC], partitions=load.partitions)
    written = _write(broker, load)
    broker.restart()
    settle(broker)
    read = _read_back(broker, load)
    gib = load.mib_per_second * _UPLOAD_INTERVALS * _UPLOAD_INTERVAL_SECONDS / 1024
    dollars = sum(prices.request_dollars(puts=bill.puts, gets=bill.gets, lists=bill.lists) for bill in (written, read))
    return {
        "puts_per_gib": written.puts / gib,
        "lists_per_gib": (written.lists + read.lists) / gib,
        "gets_per_gib": read.gets / gib,
        "dollars_per_tib": prices.bucket_dollars_per_tib(requests_per_gib=dollars / gib),
        "replicated_dollars_per_tib": prices.replicated_dollars_per_tib(),
    }


def _write(broker: Broker, load: _Load) -> Bill:
    job = PacedProduceJob(
        bootstrap=broker.bootstrap,
        topics=[_TOPIC],
        record_bytes=_RECORD_BYTES,
        records_per_second=load.mib_per_second * MIB // _RECORD_BYTES,
        warm_up_seconds=0.0,
        seconds=_UPLOAD_INTERVALS * _UPLOAD_INTERVAL_SECONDS,
    )
    await_uploaded(broker)
    before = read_bill(broker)
    run_load([job])
    await_uploaded(broker)
    return read_bill(broker) - before


def _read_back(broker: Broker, load: _Load) -> Bill:
    partitions = list(range(load.partitions))
    count = count_records(broker.bootstrap, _TOPIC, partitions)
    before = read_bill(broker)
    run_load([ConsumeJob(bootstrap=broker.bootstrap, topic=_TOPIC, partitions=partitions, count=count)])
    return read_bill(broker) - before
