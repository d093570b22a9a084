"""What the node says to the process that runs its queries, and hears from it: JSON, a line for each. Imports nothing of Spark."""

from typing import TypeAlias

import msgspec


class QueryOrder(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    rows_max: int
    bytes_max: int
    """Of all cells together."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    """As Spark names it: `bigint`, `array<string>`."""


class QueryRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a query has given, as the API shows it."""

    columns: list[Column]
    rows: list[list[str | None]]
    """Every cell as text, so that numbers of 64 bits and decimals stay what they are; null is null."""
    cut: str
    """What was left out, in a sentence; empty where nothing was."""


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    row_count: int
    result: msgspec.Raw
    """`QueryRows`, which the node passes on as they are."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The query is wrong, or not allowed. The process takes the next one."""

    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Spark could not start, or broke. The process ends."""

    reason: str


Answer: TypeAlias = Answered | Refused | Failed
