"""What a query's filters allow us not to read. Filters still run in Spark: this only leaves bytes out."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

_OFFSET_END: Final = 2**63 - 1


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    offset_first: int = 0
    offset_end: int = _OFFSET_END
    since_ms: int | None = None
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None

    def takes(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


NOTHING_PRUNED: Final = Pruning()


class Condition(msgspec.Struct, frozen=True):
    """`column operator value`, with one of = > >= < <= in."""

    column: str
    operator: str
    # A literal of the query: int, str, datetime, or a collection of them.
    value: Any


def prune(conditions: Iterable[Condition]) -> Pruning:
    """The narrowest reading that no record fulfilling all conditions can be outside of."""
    pruning = NOTHING_PRUNED
    for condition in conditions:
        pruning = _narrow(pruning, condition)
    return pruning


def _narrow(pruning: Pruning, condition: Condition) -> Pruning:
    value = condition.value
    replace = msgspec.structs.replace
    match condition.column, condition.operator:
        case "offset", "=":
            return replace(
                pruning,
                offset_first=max(pruning.offset_first, value),
                offset_end=min(pruning.offset_end, value + 1),
            )
        case "offset", ">" | ">=":
            first = value + 1 if condition.operator == ">" else value
            return replace(pruning, offset_first=max(pruning.offset_first, first))
        case "offset", "<" | "<=":
            end = value if condition.operator == "<" else value + 1
            return replace(pruning, offset_end=min(pruning.offset_end, end))
        case "timestamp", "=" | ">" | ">=" if isinstance(value, datetime):
            since = int(value.timestamp() * 1000)
            return replace(pruning, since_ms=max(pruning.since_ms or since, since))
        case "topic", "=" | "in":
            names = frozenset([value] if condition.operator == "=" else value)
            return replace(pruning, topics=names if pruning.topics is None else pruning.topics & names)
        case "partition", "=" | "in":
            numbers = frozenset([value] if condition.operator == "=" else value)
            return replace(pruning, partitions=numbers if pruning.partitions is None else pruning.partitions & numbers)
        case _:
            return pruning
