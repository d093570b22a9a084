"""What a handler is given beside its request: who asks, and the parts of the node that it may use."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headrace.admin.api.operations import Operations, Progress
from headrace.admin.login.entrance import Entrance
from headrace.admin.rights import CLUSTER_NAME, Operation, Principal, Resource
from headrace.admin.session import Health
from headrace.broker.access.service import Guard
from headrace.broker.access.words import parse_principal
from headrace.broker.broker_watch import BrokerWatch
from headrace.broker.browse import RecordTimes, SeenRecord
from headrace.broker.groups.lag import LagTrends
from headrace.broker.groups.standings import Standings
from headrace.broker.services import Broker
from headrace.broker.slices import Turns
from headrace.errors import Denied
from headrace.telemetry.history import History


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the bucket that holds records."""

    key: str
    size_bytes: int
    dead_bytes: int
    """Of records that are deleted or were written anew elsewhere."""
    partition_count: int


class StoredSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one partition in one object."""

    partition: int
    base_offset: int
    end_offset: int
    record_count: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epoch: int
    committed_ms: int
    key: str
    position: int


class StorageState(msgspec.Struct, frozen=True, kw_only=True):
    """The object store as this node sees it."""

    address: str
    is_down: bool
    object_count: int
    object_bytes: int
    dead_bytes: int
    manifests_pending: int
    spill_bytes: int
    wal_capacity_bytes: int
    wal_used_bytes: int
    arena_bytes: int
    requests: dict[str, int]
    """Since this node started, by operation."""
    sent_bytes: int
    received_bytes: int
    request_dollars: float
    """What these requests cost at list prices."""
    month_dollars: float
    """What a month of what is stored now, and of requests at the rate since the start, costs at list prices."""
    prices_from: str


class VerifyResult(msgspec.Struct, frozen=True, kw_only=True):
    object_count: int
    segment_count: int
    record_count: int
    size_bytes: int
    hole_count: int
    findings: tuple[str, ...]


class Storage(Protocol):
    """The tier, as far as an administrator looks into it. The node introduces it."""

    def state(self) -> StorageState: ...

    def objects(self) -> Iterable[StoredObject]:
        """Made one by one, while the caller leaves the loop to others in between; so are segments."""
        ...

    def segments(self, topic_id: bytes, partition: int) -> Iterable[StoredSegment]: ...

    async def verify(self, progress: Progress) -> VerifyResult: ...


class PipelineState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    batch: int
    """The last finished micro-batch; -1 before the first."""
    rows_total: int
    rows_per_second: float
    batch_ms: int
    lag: dict[str, int]
    """Records waiting, by topic and partition; only those that have any."""
    lag_total: int
    restart_count: int
    error: str | None
    changed_ms: int


class PipelinesState(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline process beside this node."""

    state: str
    """Of the process: `off`, `silent`, or what it says of itself."""
    written_ms: int | None = None
    pipelines: tuple[PipelineState, ...] = ()


class SnapshotState(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of a table."""

    id: str
    committed_ms: int
    operation: str
    added_rows: int


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record that did not fit into its table."""

    topic: str
    partition: int
    offset: int
    reason: str
    column: str | None
    detail: str | None
    failed_ms: int


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a pipeline."""

    table: str
    rows: int
    files: int
    size_bytes: int
    committed_ms: int | None
    """Of the last commit: how fresh it is. None before the first."""
    snapshots: list[SnapshotState]
    """The newest first."""
    is_dead_letters: bool
    reasons: dict[str, int]
    """Dead letters by reason."""
    letters: list[DeadLetterRow]
    """The newest first."""
    is_counted: bool
    """Whether every dead letter was counted."""


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, str]
    """By column, as text; columns that are null are left out."""


class RecordRows(msgspec.Struct, frozen=True, kw_only=True):
    """What one table of a pipeline has of a record."""

    pipeline: str
    table: str
    has_origins: bool
    """Whether its rows say which record they come from; sums and counts do not."""
    rows: list[TableRow]
    """None where the record is not there."""
    reason: str | None
    """Why it is a dead letter, where it is one."""


class Pipelines(Protocol):
    """The pipeline process beside this node. The node introduces it."""

    def state(self) -> PipelinesState: ...

    async def tables(self, pipeline: str) -> list[TableState]: ...

    async def rows_of(self, topic: str, partition: int, offset: int) -> list[RecordRows]:
        """In the tables of all pipelines."""

    async def replay(self, pipeline: str) -> str: ...

    async def backfill(self, pipeline: str, *, since: str, until: str, is_replacing: bool) -> str: ...

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class SearchOrder(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    filter: str
    partition: int | None
    since_ms: int
    limit: int


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    records: list[SeenRecord]
    """The newest first."""
    matched: int
    scanned: int
    unreadable: list[str]
    """What could not be looked through, and why."""
    is_complete: bool


class SqlOrder(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    limit: int


class Queries(Protocol):
    """SQL beside this node. The node introduces it."""

    def require_room(self) -> None:
        """Raises what keeps a query from being run here now."""

    async def run(self, order: SqlOrder, progress: Progress) -> msgspec.Raw:
        """Columns, rows and what was cut, as JSON."""

    async def stop(self) -> None: ...


class KafkaError(Protocol):
    """A member of Kafka's table of errors."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The node as its API sees it; the node itself fills this in."""

    broker: Broker
    storage: Storage
    health: Callable[[], Health]
    watch: BrokerWatch
    pipelines: Pipelines
    gate: Entrance
    operations: Operations
    record_times: RecordTimes
    history: History
    lag_trends: LagTrends
    standings: Standings
    search: Callable[[SearchOrder, Progress], Awaitable[SearchResult]]
    partitions_default: int
    """Of a topic whose creator leaves their number to the node (`num.partitions`)."""
    queries: Queries
    kafka_error: Callable[[BaseException], KafkaError]
    """What the Kafka door would answer: one table of errors for every door."""


@dataclass(frozen=True, slots=True)
class Call:
    parts: Parts
    principal: Principal
    turns: Turns = field(default_factory=Turns)
    """Every walk of this call shares it."""
    change: dict[str, object] = field(default_factory=dict)
    """What a change has changed, for the audit."""

    @property
    def broker(self) -> Broker:
        return self.parts.broker

    @property
    def author(self) -> Guard:
        """Who makes the changes that this call asks for."""
        return self.broker.access.guard(parse_principal(self.principal.name), self.principal.host)

    def changed(self, *, before: object = None, after: object = None) -> None:
        """For the audit, beside the request itself: what was, and what is."""
        self.change.update(before=before, after=after)

    def sees(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """For lists: what it says no to is left out."""
        return self.parts.gate.sees(self.principal, operation, resource, name)

    def require(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> None:
        """For what a request names beside the resource of its route."""
        if not self.parts.gate.may(self.principal, operation, resource, name):
            raise Denied(f"{self.principal.name} may not {operation.value} {resource.value} {name!r}")
