"""A broker that no controller hears acknowledges records of `wal` topics for a while, and then no more."""

from pathlib import Path

import pytest
from tests.support.logs import batch_of, opened

from headrace.errors import NotLeader
from headrace.log.policy import Durability, TopicPolicy

ON_OBJECTS = TopicPolicy(durability=Durability.OBJECT)


async def test_nothing_is_acknowledged_once_the_lease_is_over(tmp_path: Path) -> None:
    silent_ms = [60_000]
    async with opened(tmp_path, silent_ms=lambda: silent_ms[0]) as log:
        await log.append(batch_of(b"in time"))
        silent_ms[0] += 1
        with pytest.raises(NotLeader, match="no controller has heard this broker"):
            await log.append(batch_of(b"too late"))
        assert log.partitions[0].high_watermark == 1
        assert len(log.faults) == 1


async def test_a_broker_without_wal_topics_waits_for_its_controllers(tmp_path: Path) -> None:
    async with opened(tmp_path, policy=ON_OBJECTS, silent_ms=lambda: 1 << 40) as log:
        await log.append(batch_of(b"uploaded later"))
        assert not log.faults


async def test_a_node_that_is_alone_has_no_lease(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"as ever"))
