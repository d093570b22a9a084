"""Where groups stand: found by one walk, which many share where it is long."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.support.metastores import ManualClock

from headrace.broker.groups.standings import KEPT_MS_MAX, Standings
from headrace.broker.slices import Turns


class Node:
    """As much of topics and offsets as is walked."""

    def __init__(self, partitions: int) -> None:
        logs = [SimpleNamespace(high_watermark=10, removed=index == 1) for index in range(partitions)]
        self.by_name = {"orders": SimpleNamespace(partitions=logs)}
        places = [("orders", index) for index in range(partitions)]
        self.committed = {
            "readers": {**dict.fromkeys(places, 4), ("orders", partitions): 0, ("gone", 0): 0},
            "ahead": {("orders", 0): 12},
        }
        self.walks = 0

    def groups(self) -> list[str]:
        self.walks += 1
        return list(self.committed)

    def all_of(self, group: str) -> dict[tuple[str, int], Any]:  # Any: as much of an offset as is looked at
        return {place: SimpleNamespace(offset=offset) for place, offset in self.committed[group].items()}


def standings(node: Node, clock: ManualClock) -> Standings:
    return Standings(cast(Any, node), cast(Any, node), clock)  # Any: a fake's type


async def test_lag_counts_partitions_that_are_there_and_led_here() -> None:
    found = await standings(Node(3), ManualClock()).all(Turns())
    assert {group: each.lag for group, each in found.items()} == {"readers": 12, "ahead": 0}
    assert found["readers"].topics == {"orders", "gone"}


async def test_a_short_walk_is_made_for_everybody_anew_and_a_long_one_is_shared_for_a_while() -> None:
    clock, small, large = ManualClock(), Node(3), Node(100_000)
    for node, walks in ((small, 2), (large, 1)):
        kept = standings(node, clock)
        await kept.all(Turns())
        await kept.all(Turns())
        assert node.walks == walks
    many = standings(large, clock)
    await asyncio.gather(*(many.all(Turns()) for _ in range(10)))
    assert large.walks == 2, "those who ask meanwhile wait for the one walk"
    large.by_name["orders"].partitions[0].high_watermark = 11
    clock.advance(KEPT_MS_MAX)
    assert (await many.all(Turns()))["readers"].lag == 99_999 * 6 + 1
