"""What an upload interval costs in requests: data and manifest, however many partitions share them."""

import asyncio
from pathlib import Path

import pytest
from tests.support.tier_node import TierNode

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.metrics import BlobMetrics
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.clock import SystemClock

PARTITIONS = 1000
INTERVALS = 20
RECORDS_PER_INTERVAL = 10
"""One a second over the default interval, all partitions together."""


@pytest.mark.requirement("R3.118")
async def test_a_thousand_quiet_partitions_cost_two_puts_per_upload_interval(tmp_path: Path) -> None:
    """By the node's own count of what is billed, over many intervals, each with records in other partitions."""
    metrics, clock = BlobMetrics(), SystemClock()
    blobs = RetryingBlobStore(
        MemoryBlobStore(clock), ObjectStoreSettings(type="memory"), clock=clock, metrics=metrics, chance=lambda: 0.5
    )
    # Its own tasks are off: a manifest written by two at once would be counted twice.
    node = await TierNode(tmp_path, blobs=blobs, is_running_tier=False).start()
    topic = await node.topics.create("iot", partitions=PARTITIONS)
    before = _puts(metrics)
    for interval in range(INTERVALS):
        first = interval * RECORDS_PER_INTERVAL
        chosen = [topic.partitions[(first + n) * 7 % PARTITIONS] for n in range(RECORDS_PER_INTERVAL)]
        await asyncio.gather(*(_append(node, partition) for partition in chosen))
        await node.upload()
    assert 0 < _puts(metrics) - before <= 2 * INTERVALS
    assert not node.tier.metrics.tier_manifests_pending
    await node.stop()


def _puts(metrics: BlobMetrics) -> int:
    return sum(metrics.operations[name].requests for name in ("put", "put_if_absent"))


async def _append(node: TierNode, partition) -> None:  # type: ignore[no-untyped-def]  # PartitionLog
    await node.append(partition, "x")
