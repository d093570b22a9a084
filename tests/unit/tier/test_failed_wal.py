"""A WAL that has failed or was fenced ends the node: its own fault is told once, and the tier does not tell it again."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.tier_node import TierNode

from headrace.errors import NotLeader
from headrace.log.wal.writer import FENCE_NAME


async def test_a_part_of_the_tier_ends_with_the_wal_and_is_not_started_again(tmp_path: Path) -> None:
    """`NotLeader` is no fault: the ring keeper was started again and again, each time with a stack trace."""
    node = await TierNode(tmp_path, is_running_tier=False).start()
    partition = (await node.topics.create("orders", partitions=1)).partitions[0]
    (tmp_path / "wal" / FENCE_NAME).touch()
    with pytest.raises(NotLeader):
        await node.append(partition, "too late")
    with capture_logs() as events:
        await asyncio.wait_for(node.tier._supervise("ring keeper", node.logs.checkpoint), 10)
    assert [type(fault) for fault in node.faults] == [NotLeader]
    assert not events
    await node.crash()
