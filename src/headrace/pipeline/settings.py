"""`headrace.yml`: everything a pipeline process needs to know. Unknown keys and wrong types are refused by name.

Keys that Spark has a word for are spelled as Spark spells them, so that what one knows of its Kafka source holds here.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml
from msgspec import Meta

from headrace.errors import Invalid
from headrace.pipeline.source.options import Subscription
from headrace.pipeline.steps.typed import Promoted
from headrace.pipeline.tables.catalog import WarehouseSettings
from headrace.pipeline.tables.retention import Retention

PIPELINE_NAME: Final = r"^[a-z][a-z0-9_]{0,62}$"


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Spark that does the work. Restart the pipeline after a change."""

    master: str = "local[*]"
    """Where Spark runs: threads of this process, or a cluster (`spark://host:7077`, `yarn`, `k8s://...`)."""

    remote: str | None = None
    """A Spark Connect server (`sc://host:15002`) instead of `master`."""

    driver_memory: str = "2g"
    """Heap of the embedded driver. More lets larger micro-batches stay in memory."""

    class_archive: bool = True
    """Whether the JVM's classes are kept in the user's cache directory (190 MiB), so that the next start takes half the time."""

    conf: dict[str, str] = {}
    """Further Spark settings, by Spark's own names. They win over ours."""


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log to read."""

    bootstrap_servers: str = ""
    """Brokers, for the live end of the log. Without any, reading goes as far as the bucket does."""

    client_config: str | None = None
    """File of Kafka's client properties (`security.protocol`, `sasl.*`, `ssl.*`) for brokers that ask who comes. It holds the
    password: readable by the pipeline's user alone, and on every machine that reads."""

    bucket: str = ""
    """The bucket or directory with the log's objects. Without one, everything is fetched from brokers."""

    bucket_endpoint: str | None = None
    """URL of an S3-compatible server. AWS itself needs none."""

    bucket_region: str | None = None
    """Region of the bucket, where its server wants one."""

    def options(self) -> dict[str, str]:
        """As the source names them."""
        given = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.client.config": self.client_config,
            "bucket": self.bucket,
            "bucket.endpoint": self.bucket_endpoint,
            "bucket.region": self.bucket_region,
        }
        return {name: value for name, value in given.items() if value}


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all pipelines share. Every kind adds `tables`: the tables it writes, the main one first."""

    subscribe: str = ""
    """Topics by name, comma separated."""

    subscribePattern: str = ""
    """Topics by regular expression over their whole name; those that appear later join."""

    startingOffsets: Literal["earliest", "latest"] = "earliest"
    """Where the first run begins. Later runs go on where the last one stopped."""

    maxOffsetsPerTrigger: Annotated[int, Meta(ge=1)] | None = 1_000_000
    """Most records in one micro-batch: bounds memory and the time until a batch is visible when catching up."""

    minOffsetsPerTrigger: Annotated[int, Meta(ge=1)] | None = None
    """Records for which a micro-batch waits: fewer and larger files, and rows that are seen later."""

    maxTriggerDelay: str = "15m"
    """Longest that `minOffsetsPerTrigger` may hold a micro-batch back."""

    failOnDataLoss: bool = True
    """Whether a query stops when retention was faster than it, or a topic was created again. False goes on with what is
    left."""

    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted transactions are read."""

    trigger_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    """Pause between the starts of two micro-batches. Less is fresher, and makes more and smaller files."""

    @property
    def subscription(self) -> Subscription:
        if bool(self.subscribe) == bool(self.subscribePattern):
            raise Invalid("a pipeline needs exactly one of subscribe and subscribePattern")
        if self.subscribePattern:
            return Subscription(pattern=self.subscribePattern)
        return Subscription(topics=tuple(name.strip() for name in self.subscribe.split(",")))


class BronzeSettings(PipelineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="bronze"):
    """Every record as it is."""

    table: str = "bronze.records"
    """`namespace.table` for the records."""

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that rows should fulfil."""

    that: str
    """A SQL condition over the payload's columns, e.g. `price >= 0`. Null counts as not fulfilled."""

    otherwise: Literal["warn", "drop", "fail"] = "warn"
    """Count it, send the record to the dead letters, or stop the pipeline before anything of the batch lands."""


class SilverSettings(PipelineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="silver"):
    """JSON payloads as typed rows."""

    table: str
    """`namespace.table` for the typed rows."""

    dead_letters: str = ""
    """Table for records that do not fit; the main table's name with `_dead_letters` when not given."""

    schema: str = ""
    """The payload's columns as DDL. `NOT NULL` makes a column required."""

    schema_file: str = ""
    """A JSON Schema file instead of DDL."""

    promote: dict[str, Promoted] = {}
    """Without a schema: columns lifted out of the JSON, which is otherwise kept as text."""

    event_time: str | None = None
    """The column with the event's own time; the table is partitioned by its day."""

    strictness: Literal["lenient", "rescue", "strict"] = "rescue"
    """What becomes of a record that says more than its row can hold: fields that the schema does not know, a second JSON
    document, more digits than a DECIMAL has. `rescue` keeps the record's whole text in the column `_rescued`, `strict` makes it
    a dead letter, `lenient` leaves the rest out, and is faster where many records have unknown fields."""

    expectations: dict[str, Expectation] = {}
    """What rows should fulfil, by a name that findings and dead letters show."""

    @property
    def dead_table(self) -> str:
        return self.dead_letters or f"{self.table}_dead_letters"

    @property
    def tables(self) -> tuple[str, ...]:
        return self.table, self.dead_table


class LogjamSettings(PipelineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="logjam_minute"):
    """Per-minute aggregates of Logjam's request logs, and the requests worth keeping whole."""

    table: str = "logjam.minutes"
    """`namespace.table` for the aggregates."""

    requests_table: str = "logjam.requests"
    """Table for the requests that are kept whole."""

    dead_letters: str = "logjam.dead_letters"
    """Table for messages that are no requests."""

    import_threshold_ms: Annotated[float, Meta(ge=0)] = 1_000.0
    """Requests slower than this are kept whole."""

    sampled_400s_percent: Annotated[float, Meta(ge=0, le=100)] = 10.0
    """Share of requests with a 4xx answer that are kept whole, chosen by request id."""

    late_minutes: Annotated[int, Meta(ge=1)] = 60
    """Requests that started longer before their arrival are counted as late. They are aggregated all the same."""

    @property
    def tables(self) -> tuple[str, ...]:
        return self.table, self.requests_table, self.dead_letters


class UpkeepSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upkeep of the tables by the process that fills them. Restart the pipeline after a change."""

    every_minutes: Annotated[float, Meta(ge=0, le=10_080)] = 60.0
    """Pause between two rounds of compaction over the pipelines' tables. Zero leaves it to `headrace pipeline compact`."""

    orphan_age_minutes: Annotated[float, Meta(ge=1)] = 180.0
    """How old a file that nothing refers to must be before it is deleted: longer than any query that may still read it, and
    than any batch or backfill takes from its first file to its commit."""

    snapshots_kept: Annotated[int, Meta(ge=1)] = 50
    """How many of a table's newest snapshots are kept, for queries of the past. Every commit rewrites the list of them: with
    hundreds it takes a quarter of a second more. A table's own `history.expire.min-snapshots-to-keep` comes first."""

    snapshot_age_minutes: Annotated[float, Meta(ge=0)] = 0.0
    """Snapshots younger than this are kept as well, however many. A table's own `history.expire.max-snapshot-age-ms` comes
    first. Tagged snapshots and branches stay in any case."""

    @property
    def retention(self) -> Retention:
        return Retention(count=self.snapshots_kept, age_ms=int(self.snapshot_age_minutes * 60_000))


Pipeline = BronzeSettings | SilverSettings | LogjamSettings


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    source: SourceSettings = SourceSettings()
    spark: SparkSettings = SparkSettings()
    warehouse: WarehouseSettings = WarehouseSettings()
    checkpoints: str = "checkpoints"
    """Where queries keep their place. On S3 this needs the jar org.apache.hadoop:hadoop-aws."""

    state_dir: str = "state"
    """Directory for the status that `headrace pipeline status` shows."""

    upkeep: UpkeepSettings = UpkeepSettings()
    pipelines: dict[Annotated[str, Meta(pattern=PIPELINE_NAME)], Pipeline] = {}

    def pipeline(self, name: str) -> Pipeline:
        if name not in self.pipelines:
            raise Invalid(f"no pipeline {name}; there are {', '.join(self.pipelines) or 'none'}")
        return self.pipelines[name]

    def checkpoint(self, name: str) -> str:
        return f"{self.checkpoints.rstrip('/')}/{name}"


def load_config(path: Path) -> PipelineConfig:
    """Relative paths in the file are relative to the file. Raises `Invalid` with the key that is wrong."""
    try:
        document = yaml.safe_load(path.read_text()) or {}
    except FileNotFoundError as error:
        raise Invalid(f"{path} is not there; `headrace pipeline init` writes one") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not YAML: {error}") from error
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    return parse_config(document, base=path.parent.absolute(), subject=str(path))


# YAML may hold anything; msgspec checks it here.
def parse_config(document: Any, *, base: Path, subject: str = "headrace.yml") -> PipelineConfig:
    try:
        config = msgspec.convert(document, PipelineConfig)
    except msgspec.ValidationError as error:
        raise Invalid(f"{subject}: {error}") from error
    for name, pipeline in config.pipelines.items():
        try:
            _ = pipeline.subscription
        except Invalid as error:
            raise Invalid(f"{subject}: pipelines.{name}: {error}") from error
    return msgspec.structs.replace(
        config,
        checkpoints=_under(base, config.checkpoints),
        state_dir=_under(base, config.state_dir),
        warehouse=msgspec.structs.replace(config.warehouse, path=_under(base, config.warehouse.path)),
        source=msgspec.structs.replace(
            config.source, bucket=_under(base, config.source.bucket) if config.source.bucket else ""
        ),
        pipelines={name: _with_schema_path(base, pipeline) for name, pipeline in config.pipelines.items()},
    )


def embedded_config(*, bootstrap_servers: str, bucket: str, data_dir: Path) -> PipelineConfig:
    """Where the pipeline beside a node reads and writes. Which pipelines it runs, the template says."""
    return PipelineConfig(
        source=SourceSettings(bootstrap_servers=bootstrap_servers, bucket=bucket),
        warehouse=WarehouseSettings(path=str(data_dir / "warehouse")),
        checkpoints=str(data_dir / "checkpoints"),
        state_dir=str(data_dir / "state"),
    )


def _with_schema_path(base: Path, pipeline: Pipeline) -> Pipeline:
    if isinstance(pipeline, SilverSettings) and pipeline.schema_file:
        return msgspec.structs.replace(pipeline, schema_file=_under(base, pipeline.schema_file))
    return pipeline


def _under(base: Path, location: str) -> str:
    return location if "://" in location else str(base / location)
