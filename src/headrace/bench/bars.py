"""The bars headrace sets itself against its rivals, and whether results clear them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.bench.results import METRICS, Row

OURS: Final = "headrace"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """headrace's median of `metric`: as a multiple of a rival's, of another case's, or as it is."""

    workload: str
    case: str
    metric: str
    limit: float
    rival: str | None = None
    other_case: str | None = None
    broker: str = OURS

    @property
    def is_relative(self) -> bool:
        return self.rival is not None or self.other_case is not None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A bar and what was found there."""

    bar: Bar
    found: float
    is_met: bool

    def describe(self) -> str:
        """What was asked, in words."""
        metric = METRICS[self.bar.metric]
        relation = "at most" if metric.is_lower_better else "at least"
        if not self.bar.is_relative:
            return f"{metric.title} {relation} {self.bar.limit:g} {metric.unit}"
        return f"{metric.title} {relation} {self.bar.limit:g} x {self.bar.rival or self.bar.other_case}"


_W1_CASES: Final = ("16 KiB batches", "128 KiB batches", "1 MiB batches")
_W2_CASES: Final = ("10 MiB/s", "1,000 records/s")

BARS: Final = (
    *(Bar(workload="w1", case=case, metric="produce_rate", rival="kafka", limit=1.0) for case in _W1_CASES),
    *(Bar(workload="w1", case=case, metric="produce_rate", rival="kafka durable", limit=2.0) for case in _W1_CASES),
    Bar(workload="w1", case="16 KiB batches", metric="produce_cpu", rival="kafka", limit=0.5),
    Bar(workload="w1", case="1 MiB batches", metric="produce_cpu", rival="kafka", limit=1.0),
    *(Bar(workload="w1", case=case, metric="consume_rate", rival="kafka", limit=1.0) for case in _W1_CASES),
    *(Bar(workload="w1", case=case, metric="consume_cpu", rival="kafka", limit=1.0) for case in _W1_CASES),
    *(Bar(workload="w1", case=case, metric="consume_again_rate", rival="kafka", limit=1.0) for case in _W1_CASES),
    *(Bar(workload="w1", case=case, metric="consume_again_cpu", rival="kafka", limit=1.0) for case in _W1_CASES),
    *(Bar(workload="w2", case=case, metric="ack_p99", rival="kafka durable", limit=1.0) for case in _W2_CASES),
    *(Bar(workload="w2", case=case, metric="end_to_end_p99", rival="kafka durable", limit=1.0) for case in _W2_CASES),
    *(Bar(workload="w2", case=case, metric="ack_p99", limit=10.0) for case in _W2_CASES),
    Bar(workload="w8", case="produce 1 x 100 B", metric="request_cpu", rival="kafka", limit=0.5),
    Bar(workload="w8", case="produce 16 KiB", metric="request_cpu", rival="kafka", limit=0.5),
    Bar(workload="w8", case="produce 1 MiB", metric="request_cpu", rival="kafka", limit=1.0),
    Bar(workload="w8", case="fetch 1 MiB", metric="request_cpu", rival="kafka", limit=1.0),
    Bar(workload="coordination", case="offset commits", metric="request_rate", limit=10_000.0),
    Bar(
        workload="coordination",
        case="transactions of 100 records",
        metric="transaction_rate",
        rival="kafka",
        limit=1.0,
    ),
    Bar(workload="w3", case="4 consumers catch up", metric="consume_rate", limit=150.0),
    Bar(workload="w3", case="4 consumers catch up", metric="gets_per_block", limit=1.0),
    Bar(workload="w3", case="4 consumers catch up", metric="got_per_served", limit=1.1),
    *(Bar(workload="w4", case=case, metric="ack_p99_ratio", limit=1.5) for case in _W2_CASES),
    *(Bar(workload="w4", case=case, metric="end_to_end_p99_ratio", limit=1.5) for case in _W2_CASES),
    Bar(workload="wasm", case="copies and cuts each 1 KiB record", metric="record_rate", limit=200_000.0),
    Bar(workload="wasm", case="copies whole batches of 1 KiB records", metric="record_rate", limit=200_000.0),
    Bar(workload="w5", case="10,000 partitions", metric="resident", limit=1024.0),
    Bar(workload="w5", case="10,000 partitions", metric="restart_seconds", limit=10.0),
    Bar(workload="w5", case="10,000 partitions", metric="ack_p99", other_case="1 partition", limit=2.0),
    Bar(workload="idle", case="10,000 connections, kafka door", metric="resident", limit=400.0),
    Bar(workload="w5", case="10,000 partitions", metric="object_rate", other_case="1 partition", limit=1.5),
    *(
        Bar(workload="upload", case=case, metric="produce_cpu", broker=broker, rival="headrace, no uploads", limit=1.25)
        for case in _W1_CASES
        for broker in ("headrace", "headrace on S3")
    ),
    Bar(workload="object", case="10 MiB/s", metric="ack_p99", limit=400.0),
    Bar(workload="w9", case="5 MiB/s", metric="visible_p95", limit=6.0),
    Bar(workload="w9", case="5 MiB/s", metric="recovery_seconds", limit=60.0),
    Bar(workload="w10", case="sum(length(value))", metric="read_rate", rival="kafka", limit=1.8),
    Bar(workload="w10", case="sum(length(value))", metric="read_rate_started", rival="kafka", limit=2.5),
    Bar(workload="w10", case="sum(length(value))", metric="read_rate_again", rival="kafka", limit=2.5),
    Bar(workload="w10", case="backfill into ten typed columns", metric="read_rate", limit=95.0),
)


def judge(rows: Iterable[Row]) -> list[Verdict]:
    """A verdict for every bar whose figures are there."""
    medians = {
        (row.workload, row.case, row.rival, name): spread.median for row in rows for name, spread in row.spreads.items()
    }
    verdicts = []
    for bar in BARS:
        ours = medians.get((bar.workload, bar.case, bar.broker, bar.metric))
        beside = (bar.workload, bar.other_case or bar.case, bar.rival or bar.broker, bar.metric)
        theirs = medians.get(beside) if bar.is_relative else 1.0
        if ours is None or not theirs:
            continue
        found = ours / theirs
        is_met = found <= bar.limit if METRICS[bar.metric].is_lower_better else found >= bar.limit
        verdicts.append(Verdict(bar=bar, found=found, is_met=is_met))
    return verdicts
