"""The rows that one record has become: `python -m headrace.pipeline.tables.find CONFIG TOPIC PARTITION OFFSET`, JSON on stdout.

A process of its own, as `look.py`, and without Spark. Files whose statistics rule the record out are not opened.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace.errors import HeadraceError
from headrace.pipeline.settings import load_config

if TYPE_CHECKING:  # A second to import, and the shape below is read by others, too.
    from pyiceberg.table import Table

_NICE: Final = 10
_ORIGINS: Final = (("topic", "partition", "offset"), ("_topic", "_topic_partition", "_offset"))
"""What tables call the place that a row came from."""
_REASON: Final = "reason"
_TEXT_MAX: Final = 8 * 1024
_ROWS_MAX: Final = 10


class Row(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, str]
    """By column, as text; columns that are null are left out."""


class RowFound(msgspec.Struct, frozen=True, kw_only=True):
    """What one table has of the record."""

    pipeline: str
    table: str
    has_origins: bool = True
    """Whether its rows say which record they come from; sums and counts do not."""
    rows: list[Row] = []
    """More than one where a record was landed more than once, or has become several rows."""
    reason: str | None = None
    """Why it is a dead letter, where it is one."""


def main(arguments: Sequence[str]) -> int:
    os.nice(_NICE)
    path, topic, partition, offset = arguments
    try:
        found = find(Path(path), topic, int(partition), int(offset))
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


def find(config_path: Path, topic: str, partition: int, offset: int) -> list[RowFound]:
    from pyiceberg.exceptions import NoSuchTableError

    from headrace.pipeline.tables.catalog import open_catalog

    config = load_config(config_path)
    catalog = open_catalog(config.warehouse)
    found = []
    for name, settings in config.pipelines.items():
        for table in settings.tables:
            try:
                rows = _rows(catalog.load_table(table), (topic, partition, offset))
            except NoSuchTableError:
                rows = []
            found.append(_told(name, table, rows))
    return found


def _rows(table: "Table", place: tuple[str, int, int]) -> list[dict[str, Any]] | None:  # Any: a row
    """None for a table that does not say where its rows come from."""
    from pyiceberg.expressions import And, EqualTo

    from headrace.pipeline.tables.scanning import Scan, plan_files

    columns = {field.name for field in table.schema().fields}
    names = next((each for each in _ORIGINS if columns.issuperset(each)), None)
    if names is None:
        return None
    wanted = And(*(EqualTo(name, value) for name, value in zip(names, place, strict=True)))
    rows: list[dict[str, Any]] = []  # Any: as above
    for batch in Scan(table, row_filter=wanted).read(plan_files(table, wanted)):
        rows += batch.slice(0, _ROWS_MAX - len(rows)).to_pylist()
        if len(rows) >= _ROWS_MAX:
            break
    return rows


def _told(pipeline: str, table: str, rows: list[dict[str, Any]] | None) -> RowFound:  # Any: as above
    if rows is None:
        return RowFound(pipeline=pipeline, table=table, has_origins=False)
    reason = next((str(row[_REASON]) for row in rows if row.get(_REASON) is not None and "failed_time" in row), None)
    shown = [Row(values={name: _text(value) for name, value in row.items() if value is not None}) for row in rows]
    return RowFound(pipeline=pipeline, table=table, rows=shown, reason=reason)


def _text(value: Any) -> str:  # Any: whatever a column holds
    if isinstance(value, bytes):
        try:
            text = value[:_TEXT_MAX].decode()
        except UnicodeDecodeError:
            text = value[: _TEXT_MAX // 3].hex(" ")
    elif isinstance(value, str):
        text = value
    else:
        text = str(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
