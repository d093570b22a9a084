"""How far a partition's log start may rise: retention by time and by size. Pure.

Only whole segments in object storage are dropped, oldest first, and never past the high watermark: what is still in
the WAL is never dropped by retention.
"""

from collections.abc import Sequence

from headrace.log.policy import TopicPolicy
from headrace.tier.segments import LiveSegment


def retained_start(
    segments: Sequence[LiveSegment],
    policy: TopicPolicy,
    *,
    log_start: int,
    high_watermark: int,
    tail_bytes: int,
    now_ms: int,
) -> int:
    """The log start that the topic's retention asks for; at least the present one."""
    if not policy.is_deleted_by_retention:
        return log_start
    start = log_start
    total = tail_bytes + sum(each.length for each in segments if each.end_offset > log_start)
    for segment in segments:
        if segment.end_offset <= log_start:
            continue
        if segment.end_offset > high_watermark or not (
            _is_too_old(segment, policy, now_ms) or _is_too_much(total - segment.length, policy)
        ):
            break
        total -= segment.length
        start = segment.end_offset
    return start


def _is_too_old(segment: LiveSegment, policy: TopicPolicy, now_ms: int) -> bool:
    if policy.retention_ms < 0:
        return False
    # Records without a time of their own are as old as their upload.
    newest_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.committed_ms
    return newest_ms < now_ms - policy.retention_ms


def _is_too_much(rest: int, policy: TopicPolicy) -> bool:
    """As Kafka counts: a segment goes while what is left is still at least the limit."""
    return 0 <= policy.retention_bytes <= rest
