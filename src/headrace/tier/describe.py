"""A partition's segment as manifests show it: what readers without a broker must know of its transactions."""

from collections.abc import Sequence

from headrace.ids import TopicId, show_topic_id
from headrace.log.partition import PartitionLog
from headrace.tier.format.manifest import Aborted, LogStart, Segment, SegmentRef
from headrace.tier.format.object import ObjectBuilder, Run
from headrace.tier.plans import Claim, Placed
from headrace.tier.segments import LiveSegment


def placed_at(claim: Claim, runs: Sequence[Run]) -> Placed:
    """The part of an object that one claim's runs make up."""
    return Placed(
        claim=claim,
        position=runs[0].position,
        length=sum(run.length for run in runs),
        record_count=sum(run.record_count for run in runs),
        max_timestamp_ms=max(run.max_timestamp_ms for run in runs),
        min_leader_epoch=min(run.leader_epoch for run in runs),
    )


def segment_of(
    partition: PartitionLog, placed: Placed, key: str, builder: ObjectBuilder, *, bucket_end: int
) -> Segment:
    """`bucket_end` is how far the bucket has this partition once the segment is committed."""
    claim = placed.claim
    return Segment(
        topic_id=show_topic_id(TopicId(partition.topic_id)),
        partition=partition.index,
        base_offset=claim.base_offset,
        end_offset=claim.end_offset,
        key=key,
        object_size=builder.size,
        footer_size=builder.footer_size,
        position=placed.position,
        length=placed.length,
        record_count=placed.record_count,
        max_timestamp_ms=placed.max_timestamp_ms,
        leader_epoch=claim.leader_epoch,
        last_stable_offset=stable_below(partition, bucket_end),
        aborted=aborted_in(partition, claim.base_offset, claim.end_offset),
    )


def ref_of(partition: PartitionLog, segment: LiveSegment) -> SegmentRef:
    return SegmentRef(
        topic_id=show_topic_id(TopicId(partition.topic_id)),
        partition=partition.index,
        base_offset=segment.base_offset,
        key=segment.key,
    )


def log_start_of(partition: PartitionLog) -> LogStart:
    return LogStart(
        topic_id=show_topic_id(TopicId(partition.topic_id)), partition=partition.index, offset=partition.log_start
    )


def stable_below(partition: PartitionLog, end_offset: int) -> int:
    """The last stable offset for whoever sees the partition up to `end_offset` and no further.

    Not the live one: a transaction may have ended in the WAL already, where readers of the bucket cannot see how.
    """
    if partition.transactions is None:
        return end_offset
    known = partition.transactions.snapshot()
    undecided = [each.first_offset for each in known.open]
    undecided += [each.first_offset for each in known.decided if each.marker_offset >= end_offset]
    # Aborted ones leave the list of decided transactions once readers of the WAL may know; ours still may not.
    undecided += [each.first_offset for each in known.aborted if each.marker_offset >= end_offset]
    return min(end_offset, *undecided) if undecided else end_offset


def aborted_in(partition: PartitionLog, base_offset: int, end_offset: int) -> tuple[Aborted, ...]:
    """Transactions whose abort marker lies in this stretch."""
    return tuple(
        Aborted(producer_id=each.producer_id, first_offset=each.first_offset, last_offset=each.marker_offset)
        for each in partition.aborted_between(base_offset, end_offset)
        if base_offset <= each.marker_offset < end_offset
    )
