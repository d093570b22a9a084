"""What uploading adds to the price of a produced gigabyte: W1's produce phase with and without it.

The broker that does not upload has its WAL take everything: no interval, no size and no memory limit makes it begin
before the run is over. It is asked afterwards: a control that uploaded after all gives no figure. It is no free control
either, as memory that holds what is not uploaded cannot be used again. CPU is counted until the bucket has
everything and the broker is quiet, so that uploads are charged to what they carry; there is no warm-up, whose uploads
would be charged as well.
"""

from functools import partial
from typing import Final

import msgspec

from headrace.bench.bill import await_uploaded, read_bill
from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.delay import Delays
from headrace.bench.errors import LoadFailed
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker, Headrace, HeadraceOnBucket
from headrace.bench.scale import GIB, MIB, Scale
from headrace.bench.topics import create_topics, delete_topics, fresh_name
from headrace.bench.workloads.throughput import BATCHES, PARTITIONS, produce_job

WITHOUT: Final = "headrace, no uploads"
ON_BUCKET: Final = "headrace on S3"

_NEVER: Final = (
    "tier.upload.interval.ms=3600000",
    "tier.upload.object.bytes=536870912",
    "tier.upload.waiting.bytes=68719476736",
)
_RIVALS: Final = (
    Headrace(),
    HeadraceOnBucket(name=ON_BUCKET, delays=Delays()),
    Headrace(name=WITHOUT, settings=_NEVER),
)


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="upload", name=name, measure=partial(_measure, batch_bytes=batch_bytes))
        for name, batch_bytes in BATCHES.items()
    ]


WORKLOAD: Final = Workload(
    name="upload",
    title="The price of uploading",
    question="How much broker CPU does a produced GiB take, with uploads to the local store, to S3, and without?",
    cases=_cases,
    rivals=_RIVALS,
)


def _measure(broker: Broker, scale: Scale, *, batch_bytes: int) -> dict[str, float]:
    topic = fresh_name("upload")
    create_topics(broker.bootstrap, [topic], partitions=PARTITIONS)
    try:
        settle(broker)
        job = msgspec.structs.replace(produce_job(broker, scale, topic, batch_bytes), warm_up_count=0)
        before = read_bill(broker)
        meter = CpuMeter(broker)
        outcomes = run_load([job] * scale.producers, on_begin=meter.begin)
        if broker.name != WITHOUT:
            await_uploaded(broker)
        cpu_seconds = meter.seconds_when_quiet()
        uploaded = (read_bill(broker) - before).objects
    finally:
        delete_topics(broker.bootstrap, [topic])
    if broker.name == WITHOUT and uploaded:
        raise LoadFailed(f"a broker that was to upload nothing uploaded {uploaded:.0f} objects")
    produced_bytes = sum(one.bytes for one in outcomes)
    return {
        "produce_rate": produced_bytes / MIB / max(one.seconds for one in outcomes),
        "produce_cpu": cpu_seconds / (produced_bytes / GIB),
    }
