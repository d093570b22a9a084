"""What a load process can be asked to do, and what it answers. Values only."""

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    """The part all jobs share."""

    bootstrap: str
    """Address of the door that takes the load."""


class ProduceJob(Job, frozen=True, kw_only=True, tag="produce"):
    """As fast as the broker takes them: `count` records over all partitions, acks=all."""

    topic: str
    partitions: int
    record_bytes: int
    batch_bytes: int
    warm_up_count: int
    count: int


class ConsumeJob(Job, frozen=True, kw_only=True, tag="consume"):
    """Read the partitions from their start until `count` records have come."""

    topic: str
    partitions: list[int]
    count: int


class ScanJob(Job, frozen=True, kw_only=True, tag="scan"):
    """Read the partitions from their start, over and over, for `seconds`: a consumer that catches up."""

    topic: str
    partitions: list[int]
    seconds: float
    niceness: int = 0
    """How far behind everybody else it stands in line for a core."""


class GetJob(Job, frozen=True, kw_only=True, tag="get"):
    """Read ranges of the objects in a bucket at a rate, past any broker. `bootstrap` is where the store listens."""

    range_bytes: int
    bytes_per_second: float
    seconds: float


class PacedProduceJob(Job, frozen=True, kw_only=True, tag="paced_produce"):
    """Open loop: records fall due at a fixed rate, whether or not the broker keeps up."""

    topics: list[str]
    record_bytes: int
    records_per_second: int
    warm_up_seconds: float
    seconds: float


class WatchJob(Job, frozen=True, kw_only=True, tag="watch"):
    """Read what a `PacedProduceJob` writes, as it comes, and time it from when it fell due."""

    topic: str
    partitions: int
    count: int
    seconds_max: float


class ProduceRequestsJob(Job, frozen=True, kw_only=True, tag="produce_requests"):
    """Raw frames, closed loop: every connection has one Produce request under way."""

    topic: str
    partitions: int
    connections: int
    record_bytes: int
    records_per_batch: int
    warm_up_seconds: float
    seconds: float


class FetchRequestsJob(Job, frozen=True, kw_only=True, tag="fetch_requests"):
    """Raw frames, closed loop: fill the topic, then every connection has one Fetch of one batch under way."""

    topic: str
    partitions: int
    connections: int
    batches_per_partition: int
    record_bytes: int
    records_per_batch: int
    warm_up_seconds: float
    seconds: float


class RustLogRequestsJob(Job, frozen=True, kw_only=True, tag="rustlog_requests"):
    """Raw frames at the RustLog door, closed loop: every connection has one Produce of one record under way."""

    topic: str
    partitions: int
    connections: int
    record_bytes: int
    warm_up_seconds: float
    seconds: float


class HoldConnectionsJob(Job, frozen=True, kw_only=True, tag="hold_connections"):
    """Open connections, exchange one request on each, and keep them open and silent until told to begin."""

    connections: int
    door: str = "kafka"


AnyJob = (
    ProduceJob
    | ConsumeJob
    | ScanJob
    | GetJob
    | PacedProduceJob
    | WatchJob
    | ProduceRequestsJob
    | FetchRequestsJob
    | RustLogRequestsJob
    | HoldConnectionsJob
)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds."""

    p50: float
    p99: float
    p999: float
    max: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a load process did. `problems` is empty or there is no figure."""

    count: int
    total: int = 0
    """Records sent and acknowledged, those of the warm-up included."""
    bytes: int = 0
    seconds: float
    latency: Latency | None = None
    problems: list[str] = []
