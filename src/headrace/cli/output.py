"""How commands answer: tables and lines for a person, JSON for a machine. Errors go to stderr, one line each."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, NoReturn

import msgspec

from headrace.telemetry.terminal import printable

Row = Mapping[str, object]


def show_table(rows: Sequence[Row], *, columns: Sequence[str], as_json: bool, title: str | None = None) -> None:
    """Rows as a table of `columns`, or every field of every row as a JSON array."""
    if as_json:
        show_json(rows)
        return
    from rich.cells import cell_len

    if title is not None:
        say(title)
    headings = [column.replace("_", " ") for column in columns]
    lines = [headings, *([_cell(row.get(column)) for column in columns] for row in rows)]
    rights = [_is_of_numbers(row.get(column) for row in rows) for column in columns]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for number, cells in enumerate(lines):
        padded = []
        for cell, width, is_right in zip(cells, widths, rights, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if is_right else cell + space)
        # A terminal wraps a line that is too long for it. Cropped, a lag of 1053 would read "1…".
        line = "  ".join(padded).rstrip()
        say(_bold(line) if number == 0 else line)


def show_fields(fields: Row, *, as_json: bool) -> None:
    """One thing, a line per field."""
    if as_json:
        show_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        say(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


def time_of(time_ms: int) -> str:
    """A moment for a person, in UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03} UTC"


def show_done(line: str, *, as_json: bool, **fields: object) -> None:
    """Something was done: a line for a person, the fields for a machine."""
    if as_json:
        show_json(fields)
    else:
        say(line)


def show_json(value: object) -> None:
    say(msgspec.json.encode(value).decode())


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def note(line: str) -> None:
    """Something worth knowing that is not the answer."""
    sys.stderr.write(printable(line, keep="\n\t") + "\n")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Call what this gives with each amount done: a bar on a terminal, a line per tenth elsewhere, on stderr."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda amount: bar.advance(task, amount)
        return

    done = tenths = 0

    def advance(amount: int) -> None:
        nonlocal done, tenths
        done += amount
        if total and done * 10 // total > tenths:
            tenths = done * 10 // total
            note(f"{title}: {tenths * 10}%")

    yield advance


def fail(message: str) -> NoReturn:
    note(f"headrace: {message}")
    sys.exit(1)


def raw_stdout() -> IO[bytes]:
    """For bytes that are not ours to decode."""
    return sys.stdout.buffer


def _is_of_numbers(values: Iterable[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _bold(line: str) -> str:
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return line if is_plain else f"\x1b[1m{line}\x1b[0m"


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(_cell, value)) or "-"
        case float() if value.is_integer():
            return str(int(value))
        case dict():
            return ", ".join(f"{name}={_cell(item)}" for name, item in value.items()) or "-"
        case _:
            # Names are chosen by clients.
            return printable(str(value))
