"""An upload round, a trim and a checkpoint over thousands of partitions never keep the event loop for long.

Counted in steps, not by the clock: a step is what is done for one partition, a few microseconds; a turn is one pass of the
event loop, between which clients are served.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tier_node import TierNode

from headrace.log import store
from headrace.log.partition import PartitionLog
from headrace.tier import carrier, plans

PARTITIONS = 3000
STEPS_PER_TURN_MAX = 512


class Turns:
    """Counts the steps of each turn of the loop, by kind, and keeps the most."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._tick()

    def _tick(self) -> None:
        self.most |= self._now
        self._now.clear()
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()
        self.most |= self._now

    def counted(self, kind: str, step: Callable[..., Any]) -> Callable[..., Any]:  # Any: whatever the step takes
        def counting(*arguments: Any, **named: Any) -> Any:
            self._now[kind] += 1
            self.totals[kind] += 1
            return step(*arguments, **named)

        return counting


async def test_no_turn_of_the_loop_does_the_work_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=PARTITIONS)
    for partition in topic.partitions:
        node.send(partition, "x")
    await node.logs.wal.drain()
    turns = Turns()
    steps: tuple[tuple[object, str], ...] = (
        (PartitionLog, "read_for_upload"),
        (PartitionLog, "mark_uploaded"),
        (store, "first_unuploaded_lsn"),
        (plans, "keep_part"),
        (plans, "prepare_part"),
        (plans, "commit_part"),
        (carrier, "segment_of"),
        (store, "picture_of"),
    )
    for owner, name in steps:
        monkeypatch.setattr(owner, name, turns.counted(name, getattr(owner, name)))
    assert await node.tier.uploader.upload_round()
    assert await node.logs.trim()
    turns.stop()
    assert {name: turns.totals[name] for _, name in steps} == {name: PARTITIONS for _, name in steps}
    assert max(turns.most.values()) <= STEPS_PER_TURN_MAX, turns.most
    await node.stop()
