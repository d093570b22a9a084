"""`python -m headrace.bench.load JOB`: one load process. See the package for what it says and hears."""

import gc
import sys
from collections.abc import Callable
from typing import assert_never

import msgspec

from headrace.bench.load import librdkafka, objects, raw
from headrace.bench.load.jobs import (
    AnyJob,
    ConsumeJob,
    FetchRequestsJob,
    GetJob,
    HoldConnectionsJob,
    Outcome,
    PacedProduceJob,
    ProduceJob,
    ProduceRequestsJob,
    RustLogRequestsJob,
    ScanJob,
    WatchJob,
)


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=AnyJob)
    # A collection in the middle of a window would be measured as the broker's latency.
    gc.disable()
    outcome = _run(job, _announce_and_wait)
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")


def _announce_and_wait() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        raise SystemExit("the benchmark went away")


def _run(job: AnyJob, begin: Callable[[], None]) -> Outcome:
    match job:
        case ProduceJob():
            return librdkafka.produce(job, begin)
        case ConsumeJob():
            return librdkafka.consume(job, begin)
        case ScanJob():
            return librdkafka.scan(job, begin)
        case GetJob():
            return objects.get(job, begin)
        case PacedProduceJob():
            return librdkafka.produce_paced(job, begin)
        case WatchJob():
            return librdkafka.watch(job, begin)
        case ProduceRequestsJob():
            return raw.produce_requests(job, begin)
        case FetchRequestsJob():
            return raw.fetch_requests(job, begin)
        case RustLogRequestsJob():
            return raw.rustlog_requests(job, begin)
        case HoldConnectionsJob():
            return raw.hold_connections(job, begin)
        case _:
            assert_never(job)


if __name__ == "__main__":
    main()
