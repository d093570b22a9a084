"""`backfill`: any range of the log into a pipeline's tables, beside the live query.

Only what the main table does not cover is read; it is read from object storage, in pieces of bounded size, and every piece is
committed with its offsets. Stopped anywhere, a backfill simply goes on where coverage ends. `replace` instead makes the rows of
a range anew, after a schema was fixed, and swaps them in.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import SystemClock
from headrace.errors import Concurrent, UnsupportedOperation
from headrace.pipeline.batches import Batch, is_within, offsets_of
from headrace.pipeline.jobs.landing import Landing, Replaceable
from headrace.pipeline.jobs.straight import StraightSource
from headrace.pipeline.settings import PipelineConfig
from headrace.pipeline.source.density import offset_behind, records_between
from headrace.pipeline.source.log import Log, PartitionView, View, open_log
from headrace.pipeline.source.offsets import format_offsets
from headrace.pipeline.source.options import SourceOptions, parse_options
from headrace.pipeline.source.planning import resolve_bound
from headrace.pipeline.tables.committing import ATTEMPTS_MAX
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.port import TableChanged

RECORDS_PER_PIECE: Final = 2_000_000
"""Records committed at a time: what is lost when a backfill is stopped, and what a batch may hold in memory."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The range to fill, as the source's options say it; by default the whole log."""

    startingOffsets: str = "earliest"
    endingOffsets: str = "latest"
    startingTimestamp: int | None = None
    endingTimestamp: int | None = None

    def options(self) -> dict[str, str]:
        given = {
            "startingOffsets": self.startingOffsets,
            "endingOffsets": self.endingOffsets,
            "startingTimestamp": self.startingTimestamp,
            "endingTimestamp": self.endingTimestamp,
            "startingOffsetsByTimestampStrategy": "latest",
        }
        return {name: str(value) for name, value in given.items() if value is not None}


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One commit's worth of a backfill."""

    offsets: Coverage
    record_count: int


class Backfill:
    """A planned backfill: ask `pieces` what there is to do, then `land` each."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, landing: Landing, wanted: Wanted) -> None:
        self._spark = spark
        self._landing = landing
        self._settings = config.pipeline(landing.name)
        self._source = {
            **config.source.options(),
            "includeHeaders": "true",
            "isolation.level": self._settings.isolation_level,
        }
        self._clock = SystemClock()
        options = _options(self._source, landing, wanted)
        log = open_log(options)
        view = log.view()
        self._topic_names = {partition.topic_id: place.topic for place, partition in view.items()}
        self._partitions = {PartitionId(each.topic_id, place.partition): each for place, each in view.items()}
        self._range = _range_of(options, log, view)

    def pieces(self, covered: Coverage) -> list[Piece]:
        """What of the range is not in `covered`, in pieces of bounded size, one range per partition in each."""
        return [
            Piece(offsets=offsets, record_count=self._records_in(offsets))
            for offsets in _cut(self._range.minus(covered), RECORDS_PER_PIECE, self._partitions)
        ]

    def _records_in(self, offsets: Coverage) -> int:
        return sum(
            records_between(self._partitions[key], part.start, part.end)
            for key, parts in offsets.ranges.items()
            for part in parts
        )

    def land(self, piece: Piece) -> int:
        """Read and commit one piece. Gives back the rows that were new."""
        batch = Batch(
            frame=self._read(piece.offsets),
            covered=piece.offsets,
            topic_names=self._topic_names,
            token=None,
            now_ms=self._clock.now_ms(),
            straight=StraightSource(self._spark, self._options_for),
        )
        return self._landing.land(batch).record_count

    def replace(self) -> int:
        """Make the range's rows anew, by today's rules, one overwrite commit per table. Gives back the rows made.

        Raises `UnsupportedOperation` for pipelines whose rows are sums of many records.
        """
        targets = self._landing.replaceable()
        if not targets:
            raise UnsupportedOperation(f"{self._landing.name} keeps aggregates, which cannot be taken apart")
        count = 0
        for piece in _cut(self._range, self._range.count() or 1, self._partitions):
            batch = Batch(
                frame=self._read(piece),
                covered=piece,
                topic_names=self._topic_names,
                token=None,
                now_ms=self._clock.now_ms(),
            )
            count += sum(self._replace_in(target, batch) for target in targets)
        return count

    def _replace_in(self, target: Replaceable, batch: Batch) -> int:
        table = target.table
        assert isinstance(table, IcebergTable), "only Iceberg tables can swap files"
        is_replaced = is_within(batch.covered, batch.topic_names, **target.origin._asdict())
        ranges = [part for parts in batch.covered.ranges.values() for part in parts]
        for _ in range(ATTEMPTS_MAX):
            table.refresh()
            removed = table.files_with(target.origin.offset, ranges)
            fresh = target.make_rows(batch)
            # A row that names no record is none of ours: another engine put it there, and it stays.
            kept = table.read_files(self._spark, removed).where(~F.coalesce(is_replaced, F.lit(False)))
            written = table.write(fresh.unionByName(kept, allowMissingColumns=True))
            survivors = kept.count()
            try:
                table.replace(written, removed=removed, covered=batch.covered.minus(table.coverage()))
            except TableChanged:
                continue
            return int(written.record_count - survivors)
        raise Concurrent(f"{table.name} changed under {ATTEMPTS_MAX} attempts to replace a range")

    def _read(self, offsets: Coverage) -> DataFrame:
        return self._spark.read.format("headrace").options(**self._bounds(offsets)).load()

    def _options_for(self, offsets: Coverage) -> list[SourceOptions]:
        """A live query may have covered something in the middle, so a partition can have several ranges."""
        records_max = offsets.count() * len(offsets.ranges)
        return [
            parse_options(self._bounds(part), is_stream=False) for part in _cut(offsets, records_max, self._partitions)
        ]

    def _bounds(self, offsets: Coverage) -> dict[str, str]:
        """The source's options for these offsets."""
        starts, ends = offsets_of(offsets, self._topic_names)
        assigned: dict[str, list[int]] = {}
        for place in sorted(starts):
            assigned.setdefault(place.topic, []).append(place.partition)
        return {
            **self._source,
            "assign": msgspec.json.encode(assigned).decode(),
            "startingOffsets": msgspec.json.encode(format_offsets(starts)).decode(),
            "endingOffsets": msgspec.json.encode(format_offsets(ends)).decode(),
            "failOnDataLoss": str(self._settings.failOnDataLoss).lower(),
        }


def _options(source: dict[str, str], landing: Landing, wanted: Wanted) -> SourceOptions:
    subscription = landing.subscription
    if subscription.pattern is not None:
        topics = {"subscribePattern": subscription.pattern}
    else:
        topics = {"subscribe": ",".join(subscription.topics)}
    return parse_options({**source, **topics, **wanted.options()}, is_stream=False)


def _range_of(options: SourceOptions, log: Log, view: View) -> Coverage:
    starts = resolve_bound(options.starting, view, log.offset_at, is_start=True)
    ends = resolve_bound(options.ending, view, log.offset_at, is_start=False)
    return Coverage(
        {
            PartitionId(partition.topic_id, place.partition): [
                Range(max(starts[place], partition.log_start), ends[place])
            ]
            for place, partition in view.items()
        }
    )


def _cut(coverage: Coverage, records_max: int, partitions: Mapping[PartitionId, PartitionView]) -> Iterator[Coverage]:
    """Pieces of about `records_max` records in which every partition has one range."""
    waiting = {key: list(parts) for key, parts in coverage.ranges.items()}
    while any(waiting.values()):
        piece: dict[PartitionId, list[Range]] = {}
        busy = [key for key, parts in waiting.items() if parts]
        share = max(1, records_max // len(busy))
        for key in busy:
            part = waiting[key].pop(0)
            end = offset_behind(partitions[key], part.start, part.end, share)
            piece[key] = [Range(part.start, end)]
            if end < part.end:
                waiting[key].insert(0, Range(end, part.end))
        yield Coverage(piece)
