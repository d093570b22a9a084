"""Trends of lag: bounded, of groups that there are, and nothing where nobody looked."""

from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.groups.lag import LagTrends
from headrace.broker.offset_records import CommittedOffset
from headrace.broker.offsets import Offsets
from headrace.broker.topics import Topics


class Committed:
    """As much of offsets and topics as lag is made of: one partition that has 100 records."""

    def __init__(self) -> None:
        self.by_group = {"g": 0, "h": 100}

    def groups(self) -> list[str]:
        return list(self.by_group)

    def all_of(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        return {("t", 0): CommittedOffset(offset=self.by_group[group]), ("gone", 0): CommittedOffset(offset=0)}

    def has_partition(self, topic: str, index: int) -> bool:
        return topic == "t"

    def partition(self, topic: str, index: int) -> Any:  # Any: as much of a partition as lag needs
        return SimpleNamespace(high_watermark=100, removed=False)


async def test_samples_are_kept_for_a_while_and_of_groups_that_there_are() -> None:
    node = Committed()
    trends = LagTrends(cast(Topics, node), cast(Offsets, node))
    assert trends.of("g") == []
    assert trends.at("g", 10**9) is None
    for minute in range(200):
        node.by_group["g"] = min(minute, 100)
        await trends.sample(minute * 60_000)
    points = trends.of("g")
    assert (len(points), points[0].time_ms, points[0].lag) == (180, 20 * 60_000, 80)
    assert trends.at("g", 30 * 60_000 + 1) == 70
    assert trends.at("g", 0) is None
    del node.by_group["g"]
    await trends.sample(201 * 60_000)
    assert trends.of("g") == []
    assert trends.at("h", 10**9) == 0
