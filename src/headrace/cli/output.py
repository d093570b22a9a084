"""How commands answer: tables and lines for a person, JSON for a machine. Errors go to stderr, one line each."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, NoReturn

import msgspec

Row = Mapping[str, object]


def show_table(rows: Sequence[Row], *, columns: Sequence[str], as_json: bool, title: str | None = None) -> None:
    """Rows as a table of `columns`, or every field of every row as a JSON array."""
    if as_json:
        show_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), int) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    # A terminal wraps and crops to its width; a pipe gets every character.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def show_fields(fields: Row, *, as_json: bool) -> None:
    """One thing, a line per field."""
    if as_json:
        show_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        say(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


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
    sys.stderr.write(line + "\n")


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


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(_cell, value)) or "-"
        case dict():
            return ", ".join(f"{name}={_cell(item)}" for name, item in value.items()) or "-"
        case _:
            return str(value)
