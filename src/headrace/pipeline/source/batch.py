"""One read of the log between two bounds: which tasks it takes, and what their executors must know."""

import os
from collections.abc import Mapping, Sequence

from headrace.pipeline.source.log import open_log
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.options import SourceOptions
from headrace.pipeline.source.planning import (
    Layout,
    Slice,
    Task,
    lost_offsets,
    plan_tasks,
    resolve_bound,
    slices_between,
)
from headrace.pipeline.source.pruning import NOTHING_PRUNED, Pruning
from headrace.pipeline.source.reading import ReadSettings


def plan_batch(options: SourceOptions, pruning: Pruning = NOTHING_PRUNED) -> list[Task]:
    """Tasks for all that lies between the bounds now."""
    log = open_log(options)
    view = log.view()
    start = resolve_bound(options.starting, view, log.offset_at, is_start=True)
    end = resolve_bound(options.ending, view, log.offset_at, is_start=False)
    slices = slices_between(start, end, view, is_loss_fatal=options.is_loss_fatal)
    warn_of_loss(start, slices)
    bucket = log.footer_source()
    return plan_tasks(
        slices,
        bucket.footer if bucket is not None else None,
        has_broker=bool(options.brokers),
        layout=layout_of(options),
        pruning=pruning,
    )


def layout_of(options: SourceOptions) -> Layout:
    return Layout(
        # A query in a notebook plans where its driver runs, which nobody tells about the cluster's size.
        cores=options.cores or os.cpu_count() or 1,
        partitions_min=options.partitions_min,
        records_per_partition_max=options.records_per_partition_max,
    )


def settings_of(options: SourceOptions) -> ReadSettings:
    return ReadSettings(
        brokers=options.brokers,
        security=options.security,
        bucket=options.bucket,
        isolation=options.isolation,
        is_loss_fatal=options.is_loss_fatal,
    )


def warn_of_loss(start: Mapping[TopicPartition, int], slices: Sequence[Slice], topics: Sequence[str] = ()) -> None:
    losses = [*topics, *lost_offsets(start, slices)]
    if not losses:
        return
    # Every query plans in a process of its own, and few have anything to say: logging is imported by those.
    from headrace.telemetry import get_logger

    logger = get_logger(__name__)
    for lost in losses:
        logger.warning("records were deleted before they were read", lost=lost)
