"""One batch into one table, exactly once, whatever else happens to the table meanwhile.

    marker there? -> done.   else: what of the batch is not covered yet? -> write that -> commit, or start over

The marker makes a repeated batch change nothing; coverage makes an overlapping backfill or a second pipeline write only
what is missing. Both are checked again inside the commit, so the checks here only save work.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from headrace.errors import Concurrent
from headrace.pipeline.failpoints import reach
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.port import CommitToken, Table, TableChanged, Written

ATTEMPTS_MAX: Final = 5
"""A table that changes under every attempt, with nothing of the batch landed, is being fought over; say so."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    record_count: int
    is_duplicate: bool = False


def append_once(
    table: Table, make_frame: Callable[[Coverage], DataFrame], *, token: CommitToken | None, covered: Coverage
) -> Appended:
    """Commit `make_frame(uncovered)` as the batch `token`, which stands for the offsets `covered`.

    `make_frame` gets what the table does not hold yet and must give exactly the rows that come of it. A backfill has no
    token: its offsets say all there is to say.
    """
    return append_files_once(table, lambda offsets: table.write(make_frame(offsets)), token=token, covered=covered)


def append_files_once(
    table: Table, write: Callable[[Coverage], Written], *, token: CommitToken | None, covered: Coverage
) -> Appended:
    """As `append_once`, for whoever writes the files in another way than from a frame."""
    attempts_left, left = ATTEMPTS_MAX, covered.count()
    while attempts_left:
        attempts_left -= 1
        table.refresh()
        uncovered = covered.minus(table.coverage())
        if uncovered.count() < left:
            # Whoever was faster has landed some of it for us: a live query beside a backfill may do so many times.
            attempts_left, left = ATTEMPTS_MAX - 1, uncovered.count()
        if token is None:
            if not uncovered:
                return Appended(record_count=0, is_duplicate=True)
        elif table.has_committed(token):
            return Appended(record_count=0, is_duplicate=True)
        else:
            table.hold_lease(token.writer)
        reach("before write")
        try:
            written = write(uncovered)
            reach("after write")
            is_new = table.commit(written, token=token, covered=uncovered)
        except TableChanged:
            continue
        reach("after commit")
        return Appended(record_count=written.record_count if is_new else 0, is_duplicate=not is_new)
    raise Concurrent(f"table {table.name} changed under {ATTEMPTS_MAX} attempts to commit a batch")
