"""What stands in the tables of one pipeline, for whoever shows it: `python -m headrace.pipeline.tables.look CONFIG PIPELINE`, JSON on stdout.

A process of its own: a broker should not hold the libraries that read tables. Without Spark, which would take ten seconds to start.
"""

import heapq
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace.errors import HeadraceError
from headrace.pipeline.settings import load_config

if TYPE_CHECKING:  # A second to import, and the shapes below are read by others, too.
    from pyiceberg.table import Table

SNAPSHOTS_MAX: Final = 20
LETTERS_MAX: Final = 50
COUNTED_MAX: Final = 1_000_000
"""Dead letters whose reasons are counted: some seconds of reading."""
_NICE: Final = 10
_REASON: Final = "reason"
_LETTER_COLUMNS: Final = ("topic", "partition", "offset", _REASON, "column_name", "detail", "failed_time")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    committed_ms: int
    operation: str
    added_rows: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    reason: str
    column: str | None
    detail: str | None
    failed_ms: int


class TableLook(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    committed_ms: int | None = None
    snapshots: list[Snapshot] = []
    """The newest first."""
    is_dead_letters: bool = False
    reasons: dict[str, int] = {}
    letters: list[DeadLetter] = []
    """The newest first."""
    is_counted: bool = True
    """Whether every dead letter was counted."""


def main(arguments: Sequence[str]) -> int:
    os.nice(_NICE)
    path, name = arguments
    try:
        found = look(Path(path), name)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


def look(config_path: Path, name: str) -> list[TableLook]:
    from pyiceberg.exceptions import NoSuchTableError

    from headrace.pipeline.tables.catalog import open_catalog

    config = load_config(config_path)
    catalog = open_catalog(config.warehouse)
    found = []
    for table in config.pipeline(name).tables:
        try:
            found.append(_look_at(table, catalog.load_table(table)))
        except NoSuchTableError:
            found.append(TableLook(table=table))
    return found


def _look_at(name: str, table: "Table") -> TableLook:
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms, reverse=True)
    current = table.current_snapshot()
    summary = current.summary if current is not None else None
    whole = TableLook(
        table=name,
        rows=_number(summary, "total-records"),
        files=_number(summary, "total-data-files"),
        size_bytes=_number(summary, "total-files-size"),
        committed_ms=current.timestamp_ms if current is not None else None,
        snapshots=[
            Snapshot(
                id=str(each.snapshot_id),
                committed_ms=each.timestamp_ms,
                operation=each.summary.operation.value if each.summary is not None else "",
                added_rows=_number(each.summary, "added-records"),
            )
            for each in snapshots[:SNAPSHOTS_MAX]
        ],
    )
    columns = {field.name for field in table.schema().fields}
    return _with_letters(whole, table) if columns.issuperset(_LETTER_COLUMNS) else whole


def _number(summary: Any, key: str) -> int:  # Any: pyiceberg's own, without types
    return int(summary.additional_properties.get(key, "0")) if summary is not None else 0


def _with_letters(whole: TableLook, table: "Table") -> TableLook:
    from headrace.pipeline.tables.scanning import Scan, plan_files

    reasons: Counter[str] = Counter()
    newest: list[tuple[int, int, dict[str, Any]]] = []  # Any: a row
    count = 0
    for batch in Scan(table, _LETTER_COLUMNS).read(plan_files(table)):
        if count >= COUNTED_MAX:
            break
        for row in batch.to_pylist():
            count += 1
            reasons[row[_REASON] or ""] += 1
            # The count decides between letters of one moment: rows cannot be compared.
            entry = (_milliseconds(row["failed_time"]), count, row)
            if len(newest) < LETTERS_MAX:
                heapq.heappush(newest, entry)
            else:
                heapq.heappushpop(newest, entry)
    letters = [
        DeadLetter(
            topic=row["topic"] or "",
            partition=row["partition"] or 0,
            offset=row["offset"] or 0,
            reason=row[_REASON] or "",
            column=row["column_name"],
            detail=row["detail"],
            failed_ms=failed_ms,
        )
        for failed_ms, _, row in sorted(newest, reverse=True, key=lambda each: each[:2])
    ]
    return msgspec.structs.replace(
        whole,
        is_dead_letters=True,
        reasons=dict(reasons.most_common(100)),
        letters=letters,
        is_counted=count >= whole.rows,
    )


def _milliseconds(moment: Any) -> int:  # Any: a datetime, or nothing
    return int(moment.timestamp() * 1000) if moment is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
