"""What a run found: single measurements, their medians and spreads, and the machine they hold for. Values only."""

import statistics
from collections.abc import Iterable
from typing import Final

import msgspec


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity a case can measure."""

    title: str
    unit: str
    is_lower_better: bool
    decimals: int = 1


METRICS: Final = {
    "produce_rate": Metric(title="produce", unit="MiB/s", is_lower_better=False, decimals=0),
    "produce_cpu": Metric(title="broker CPU, produce", unit="s/GiB", is_lower_better=True, decimals=2),
    "consume_rate": Metric(title="consume", unit="MiB/s", is_lower_better=False, decimals=0),
    "consume_cpu": Metric(title="broker CPU, consume", unit="s/GiB", is_lower_better=True, decimals=2),
    "consume_again_rate": Metric(title="consume again", unit="MiB/s", is_lower_better=False, decimals=0),
    "consume_again_cpu": Metric(title="broker CPU, consume again", unit="s/GiB", is_lower_better=True, decimals=2),
    "gets_per_block": Metric(title="GETs", unit="per 4 MiB", is_lower_better=True, decimals=2),
    "got_per_served": Metric(title="bytes got", unit="x bytes served", is_lower_better=True, decimals=3),
    "read_rate": Metric(title="from start to answer", unit="MiB/s", is_lower_better=False),
    "read_rate_started": Metric(title="Spark already started", unit="MiB/s", is_lower_better=False),
    "read_rate_again": Metric(title="once more in the same session", unit="MiB/s", is_lower_better=False),
    "session_seconds": Metric(title="Spark starts in", unit="s", is_lower_better=True),
    "spark_cpu": Metric(title="Spark CPU", unit="s/GiB", is_lower_better=True),
    "read_broker_cpu": Metric(title="broker CPU", unit="s/GiB", is_lower_better=True, decimals=2),
    "visible_p50": Metric(title="ack to visible p50", unit="s", is_lower_better=True),
    "visible_p95": Metric(title="ack to visible p95", unit="s", is_lower_better=True),
    "visible_max": Metric(title="longest", unit="s", is_lower_better=True),
    "recovery_seconds": Metric(title="under 10 s again after a kill", unit="s", is_lower_better=True),
    "pipeline_cpu_share": Metric(title="pipeline CPU", unit="% of a core", is_lower_better=True, decimals=0),
    "ack_p50": Metric(title="ack p50", unit="ms", is_lower_better=True, decimals=2),
    "ack_p99": Metric(title="ack p99", unit="ms", is_lower_better=True, decimals=2),
    "ack_p999": Metric(title="ack p99.9", unit="ms", is_lower_better=True, decimals=2),
    "end_to_end_p50": Metric(title="end to end p50", unit="ms", is_lower_better=True, decimals=2),
    "end_to_end_p99": Metric(title="end to end p99", unit="ms", is_lower_better=True, decimals=2),
    "ack_p99_alone": Metric(title="ack p99 alone", unit="ms", is_lower_better=True, decimals=2),
    "ack_p99_ratio": Metric(title="ack p99", unit="x alone", is_lower_better=True, decimals=2),
    "ack_p99_store": Metric(title="ack p99 beside the store alone", unit="ms", is_lower_better=True, decimals=2),
    "end_to_end_p99_alone": Metric(title="end to end p99 alone", unit="ms", is_lower_better=True, decimals=2),
    "end_to_end_p99_ratio": Metric(title="end to end p99", unit="x alone", is_lower_better=True, decimals=2),
    "catch_up_rate": Metric(title="catch-up beside it", unit="MiB/s", is_lower_better=False, decimals=0),
    "broker_cpu_share": Metric(title="broker CPU", unit="% of a core", is_lower_better=True, decimals=0),
    "put_rate": Metric(title="PUTs", unit="/s", is_lower_better=True, decimals=2),
    "object_rate": Metric(title="data objects", unit="/s", is_lower_better=True, decimals=2),
    "puts_per_gib": Metric(title="PUTs", unit="per GiB", is_lower_better=True, decimals=0),
    "lists_per_gib": Metric(title="LISTs", unit="per GiB", is_lower_better=True, decimals=1),
    "gets_per_gib": Metric(title="GETs", unit="per GiB", is_lower_better=True, decimals=0),
    "dollars_per_tib": Metric(title="written, read, kept a month", unit="$/TiB", is_lower_better=True, decimals=2),
    "replicated_dollars_per_tib": Metric(title="three copies on disks", unit="$/TiB", is_lower_better=True, decimals=2),
    "request_rate": Metric(title="requests", unit="/s", is_lower_better=False, decimals=0),
    "request_cpu": Metric(title="broker CPU", unit="us/request", is_lower_better=True, decimals=1),
    "request_p99": Metric(title="reply p99", unit="ms", is_lower_better=True, decimals=2),
    "payload_rate": Metric(title="payload", unit="MiB/s", is_lower_better=False, decimals=0),
    "transaction_rate": Metric(title="transactions", unit="/s", is_lower_better=False, decimals=0),
    "join_seconds": Metric(title="all assigned after", unit="s", is_lower_better=True, decimals=2),
    "frame_rate": Metric(title="frames parsed", unit="/s", is_lower_better=False, decimals=0),
    "message_rate": Metric(title="JSON requests decoded", unit="/s", is_lower_better=False, decimals=0),
    "parse_cpu": Metric(title="of it parse", unit="us", is_lower_better=True, decimals=1),
    "logic_cpu": Metric(title="of it logic and I/O", unit="us", is_lower_better=True, decimals=1),
    "serialise_cpu": Metric(title="of it serialise", unit="us", is_lower_better=True, decimals=1),
    "resident": Metric(title="resident", unit="MiB", is_lower_better=True, decimals=0),
    "resident_growth": Metric(title="growth", unit="MiB", is_lower_better=True, decimals=0),
    "connection_bytes": Metric(title="per connection", unit="KiB", is_lower_better=True, decimals=1),
    "record_rate": Metric(title="records", unit="/s of a core", is_lower_better=False, decimals=0),
    "record_cpu": Metric(title="CPU", unit="us/record", is_lower_better=True, decimals=2),
    "create_seconds": Metric(title="create", unit="s", is_lower_better=True, decimals=2),
    "restart_seconds": Metric(title="restart", unit="s", is_lower_better=True, decimals=2),
}
"""Every metric a workload may report, in the order tables show them."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One case, one rival, one round."""

    workload: str
    case: str
    rival: str
    fsync: str
    round: int
    metrics: dict[str, float]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A case that gave no figure, and why: it is shown, never left out."""

    workload: str
    case: str
    rival: str
    fsync: str
    reason: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures hold for."""

    processor: str
    cores: int
    memory_gib: int
    kernel: str
    file_system: str
    flush_ms: float
    """Median of a 4 KiB append with fdatasync in the directory the brokers write to."""
    congestion: str = "not looked at"
    """TCP's congestion control: some space packets by timers, between processes of one machine too."""
    python: str
    java: str
    kafka: str
    headrace: str


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one run of the benchmark found."""

    scale: str
    started_at: str
    machine: Machine
    measurements: list[Measurement]
    failures: list[Failure] = []


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The median over the rounds, between the lowest and the highest of them."""

    median: float
    low: float
    high: float
    rounds: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: a case as one rival did it, over all rounds."""

    workload: str
    case: str
    rival: str
    fsync: str
    spreads: dict[str, Spread]


def summarise(measurements: Iterable[Measurement]) -> list[Row]:
    """Rows in order of first appearance."""
    groups: dict[tuple[str, str, str, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.workload, one.case, one.rival, one.fsync), []).append(one)
    return [
        Row(workload=workload, case=case, rival=rival, fsync=fsync, spreads=_spreads(group))
        for (workload, case, rival, fsync), group in groups.items()
    ]


def _spreads(group: list[Measurement]) -> dict[str, Spread]:
    spreads = {}
    for name in METRICS:
        values = [one.metrics[name] for one in group if name in one.metrics]
        if values:
            spreads[name] = Spread(
                median=statistics.median(values), low=min(values), high=max(values), rounds=len(values)
            )
    return spreads
