"""Pipelines that land batches: what they read, the tables they keep, and one way in for every batch."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from headrace.pipeline.batches import Batch
from headrace.pipeline.source.options import Subscription
from headrace.pipeline.tables.committing import Appended
from headrace.pipeline.tables.port import Table, TableDefinition


class Landing(Protocol):
    """A pipeline whose batches go to tables. Landing a batch twice changes nothing."""

    name: str
    subscription: Subscription

    def definitions(self) -> list[TableDefinition]:
        """The tables it writes, the main one first."""
        ...

    def bind(self, tables: list[Table]) -> None:
        """The opened tables, in the order of `definitions`."""
        ...

    def land(self, batch: Batch) -> Appended: ...

    def replaceable(self) -> "list[Replaceable]":
        """Its tables whose rows say which record they came of, and how to make them anew. Aggregates cannot."""
        ...


class Origin(NamedTuple):
    """The columns that name a row's record."""

    topic: str
    partition: str
    offset: str


class Replaceable(NamedTuple):
    """A table whose rows can be exchanged for those of the same records, made by today's rules."""

    table: Table
    origin: Origin
    make_rows: Callable[[Batch], DataFrame]
