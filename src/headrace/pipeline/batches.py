"""A batch of records on its way into tables: its rows, the offsets it stands for, and the name it is committed under.

The live query, a backfill and a replay all make batches, so a pipeline has one way to land them.
"""

from collections.abc import Mapping

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.jobs.straight import StraightSource
from headrace.pipeline.source.offsets import Position, TopicPartition
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.pipeline.tables.port import CommitToken


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    frame: DataFrame
    """Rows as the source gives them, headers included."""
    covered: Coverage
    topic_names: dict[str, str]
    """Topic ids to names, of every topic in `covered`."""
    token: CommitToken | None
    now_ms: int
    straight: StraightSource | None = None
    """The same rows for tasks that read them by themselves, where the batch is not one of a streaming query."""

    def rows_in(self, offsets: Coverage) -> DataFrame:
        """The batch's rows whose offsets are in `offsets`, which is part of `covered`."""
        if offsets == self.covered:
            return self.frame
        return self.frame.where(is_within(offsets, self.topic_names))


def coverage_between(start: Position | None, end: Position) -> Coverage:
    """The offsets from `start` to `end`; partitions that `start` does not know are covered from their beginning.

    So are those of a topic that was created again in between: `start` has offsets of its namesake.
    """
    known = start.within(end.topic_ids, is_loss_fatal=False).offsets if start is not None else {}
    ranges: dict[PartitionId, list[Range]] = {}
    for place, last in end.offsets.items():
        first = known.get(place, 0)
        key = PartitionId(end.topic_ids[place.topic], place.partition)
        ranges.setdefault(key, []).append(Range(first, last))
    return Coverage(ranges)


def names_by_id(position: Position) -> dict[str, str]:
    return {topic_id: name for name, topic_id in position.topic_ids.items()}


def offsets_of(
    coverage: Coverage, topic_names: Mapping[str, str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Start and end of every partition's one range. Coverage with several ranges per partition must be cut before."""
    starts, ends = {}, {}
    for key, (only,) in coverage.ranges.items():
        place = TopicPartition(topic_names[key.topic_id], key.partition)
        starts[place], ends[place] = only.start, only.end
    return starts, ends


def is_within(
    offsets: Coverage,
    topic_names: Mapping[str, str],
    *,
    topic: str = "topic",
    partition: str = "partition",
    offset: str = "offset",
) -> Column:
    """Whether a row's record is in `offsets`, by the columns that name it."""
    condition = F.lit(False)
    for key, ranges in offsets.ranges.items():
        inside = F.lit(False)
        for part in ranges:
            inside = inside | ((F.col(offset) >= part.start) & (F.col(offset) < part.end))
        is_place = (F.col(topic) == topic_names[key.topic_id]) & (F.col(partition) == key.partition)
        condition = condition | (is_place & inside)
    return condition
