"""Pipelines that land batches: what they read, the tables they keep, and one way in for every batch."""

from typing import Protocol

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
