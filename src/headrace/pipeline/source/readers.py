"""The readers that Spark calls, on the driver to plan and on executors to read. Everything they decide is decided
elsewhere; they only speak Spark's language.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headrace.clock import Clock, SystemClock
from headrace.pipeline.decoder import Columns
from headrace.pipeline.source.batch import layout_of, plan_batch, settings_of, warn_of_loss
from headrace.pipeline.source.density import limit_offsets, waiting_count
from headrace.pipeline.source.log import Log, open_log
from headrace.pipeline.source.offsets import Position, TopicPartition
from headrace.pipeline.source.options import SourceOptions, parse_options
from headrace.pipeline.source.planning import (
    Task,
    ending_position,
    lost_topics,
    plan_tasks,
    resolve_bound,
    slices_of_stream,
    starting_position,
    topic_ids_of,
)
from headrace.pipeline.source.pruning import NOTHING_PRUNED, Condition, prune
from headrace.pipeline.source.reading import TaskReader

_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def make_batch_reader(options: Mapping[str, str], columns: tuple[str, ...]) -> "BatchReader":
    parsed = parse_options(options, is_stream=False)
    kind = PruningReader if parsed.has_pushdown else BatchReader
    return kind(parsed, columns)


def make_stream_reader(options: Mapping[str, str], columns: tuple[str, ...]) -> "StreamReader":
    return StreamReader(parse_options(options, is_stream=True), columns)


class TaskPartition(InputPartition):  # type: ignore[misc]
    def __init__(self, task: Task) -> None:
        self.task = task


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """One read of the log between two bounds, both resolved when the query is planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._pruning = NOTHING_PRUNED

    def partitions(self) -> Sequence[InputPartition]:
        return [TaskPartition(task) for task in plan_batch(self._options, self._pruning)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)


class PruningReader(BatchReader):
    """Also looks at the query's filters. A class of its own, because Spark refuses to plan a reader that defines
    `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pruning = prune(
            Condition(found.attribute[0], _OPERATORS[type(found)], found.value)
            for found in filters
            if type(found) in _OPERATORS and len(found.attribute) == 1
        )
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets on the driver, records on executors. Spark pickles it, so connections are made when first needed."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._log: Log | None = None
        self._clock: Clock = SystemClock()
        self._last_batch_ms: int | None = None
        self._newest: Position | None = None
        self._target: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        log = self._opened()
        view = log.view()
        offsets = resolve_bound(self._options.starting, view, log.offset_at, is_start=True)
        return starting_position(offsets, view).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        view = self._opened().view()
        is_loss_fatal = self._options.is_loss_fatal
        position = Position.from_json(start).within(topic_ids_of(view), is_loss_fatal=is_loss_fatal)
        newest = ending_position(position, view, is_loss_fatal=is_loss_fatal)
        self._newest = newest
        ends = newest.offsets
        if self._target is not None:
            ends = _within(self._target, position, ends)
        starts = {place: position.offsets.get(place, view[place].log_start) for place in ends}
        if self._target is None and self._should_wait(waiting_count(starts, ends, view)):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limit_offsets(starts, ends, view, limit.max_rows)
        return starting_position(ends, view).to_json()

    def _should_wait(self, count: int) -> bool:
        """Whether a micro-batch of so few records had better be a later, larger one. The first is never held back."""
        least = self._options.offsets_per_trigger_min
        if least is None or not count:
            return False
        now_ms = self._clock.now_ms()
        is_early = self._last_batch_ms is not None and now_ms - self._last_batch_ms < self._options.trigger_delay_ms_max
        if count < least and is_early:
            return True
        self._last_batch_ms = now_ms
        return False

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._opened().view()
        self._target = starting_position({place: partition.end for place, partition in view.items()}, view)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._newest.to_json() if self._newest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        log = self._opened()
        view = log.view()
        first, last = Position.from_json(start), Position.from_json(end)
        slices = slices_of_stream(first, last, view, is_loss_fatal=options.is_loss_fatal)
        topics = lost_topics(first, last, view)
        warn_of_loss({} if topics else first.offsets, slices, topics)
        bucket = log.footer_source()
        footer_of = bucket.footer if bucket is not None else None
        tasks = plan_tasks(slices, footer_of, has_broker=bool(options.brokers), layout=layout_of(options))
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._columns, partition)

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_log(self._options)
        return self._log


def _read(options: SourceOptions, columns: tuple[str, ...], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark plans one partition without a value where we plan none.
    if not isinstance(partition, TaskPartition):
        return
    _spare_imports()
    reader = TaskReader(settings_of(options), Columns(columns))
    try:
        yield from reader.read(partition.task)
    finally:
        reader.close()


@cache
def _spare_imports() -> None:
    """Once per process: a worker collects garbage after every task, and going through all modules takes 20 ms each time."""
    gc.freeze()


def _within(target: Position, start: Position, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """No further than the trigger's target; partitions that appeared since then wait for the next run."""
    return {
        place: max(start.offsets.get(place, 0), min(end, target.offsets.get(place, 0)))
        for place, end in ends.items()
        if place in target.offsets or place in start.offsets
    }
