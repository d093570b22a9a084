from datetime import UTC, datetime

import pytest

from headrace.pipeline.source.pruning import NOTHING_PRUNED, Condition, Pruning, prune


@pytest.mark.parametrize(
    ("conditions", "pruning"),
    [
        ([], NOTHING_PRUNED),
        ([Condition("offset", ">", 5), Condition("offset", "<=", 9)], Pruning(offset_first=6, offset_end=10)),
        ([Condition("offset", "=", 7)], Pruning(offset_first=7, offset_end=8)),
        ([Condition("partition", "in", (1, 2)), Condition("partition", "=", 2)], Pruning(partitions=frozenset({2}))),
        ([Condition("topic", "=", "a")], Pruning(topics=frozenset({"a"}))),
        ([Condition("timestamp", ">=", datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))], Pruning(since_ms=2000)),
        ([Condition("timestamp", "<", datetime(1970, 1, 1, tzinfo=UTC))], NOTHING_PRUNED),
        ([Condition("value", "=", b"x")], NOTHING_PRUNED),
    ],
)
def test_conditions_narrow_what_is_read(conditions: list[Condition], pruning: Pruning) -> None:
    assert prune(conditions) == pruning
