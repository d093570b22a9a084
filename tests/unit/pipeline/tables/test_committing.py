"""A batch and others who commit to the same table meanwhile."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from headrace.errors import Concurrent
from headrace.pipeline.tables.committing import ATTEMPTS_MAX, Appended, append_files_once
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.pipeline.tables.port import CommitToken, Table, TableChanged, Written


def covering(start: int, end: int) -> Coverage:
    return Coverage({PartitionId("topic-id", 0): [Range(start, end)]})


@dataclass
class ContestedTable:
    """Whoever writes to it finds that another one was faster, `races` times, each with the next `taken` offsets."""

    races: int
    taken: int
    name: str = "test.rows"
    covered: Coverage = field(default_factory=Coverage)

    def refresh(self) -> None: ...

    def coverage(self) -> Coverage:
        return self.covered

    def commit(self, written: Written, *, token: CommitToken | None, covered: Coverage) -> bool:
        if self.races:
            self.races -= 1
            end = self.covered.count()
            self.covered = self.covered.plus(covering(end, end + self.taken))
            raise TableChanged("somebody was faster")
        self.covered = self.covered.plus(covered)
        return True


def backfill(table: ContestedTable, end: int) -> Appended:
    def write(offsets: Coverage) -> Written:
        return Written(files=(), record_count=offsets.count(), schema_id=0, spec_id=0)

    return append_files_once(cast(Table, table), write, token=None, covered=covering(0, end))


def test_a_backfill_that_loses_every_race_to_the_live_query_ends_with_what_is_left() -> None:
    table = ContestedTable(races=3 * ATTEMPTS_MAX, taken=10)
    assert backfill(table, 400).record_count == 400 - 10 * 3 * ATTEMPTS_MAX
    assert table.covered == covering(0, 400)


def test_a_backfill_that_the_live_query_overtakes_has_nothing_left_to_do() -> None:
    table = ContestedTable(races=40, taken=10)
    assert backfill(table, 400) == Appended(record_count=0, is_duplicate=True)


def test_a_table_that_changes_under_every_attempt_is_fought_over() -> None:
    with pytest.raises(Concurrent, match=r"test\.rows changed under 5 attempts"):
        backfill(ContestedTable(races=1000, taken=0), 400)
