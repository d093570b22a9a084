"""Rows of a query as text, as many as fit."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from headrace.pipeline.sql.messages import Column, QueryOrder, QueryRows

CELL_MAX: Final = 8 * 1024
"""Characters of one cell that are given."""
_AROUND: Final = 4
"""Bytes that JSON puts around a cell, or for one that is null: a row may have thousands of these."""


def fit(columns: Sequence[Column], rows: Iterable[Sequence[Any]], order: QueryOrder) -> QueryRows:  # Any: any cell
    """The first rows, as many as the order lets be given; of the rest it is said that there is one."""
    given: list[list[str | None]] = []
    size = 0
    has_cut_cells = False
    cut = ""
    for row in rows:
        if len(given) >= order.rows_max:
            cut = f"there are more rows than the {order.rows_max} that were asked for"
            break
        texts = [cell_text(cell) for cell in row]
        has_cut_cells |= any(text is not None and len(text) > CELL_MAX for text in texts)
        cells = [None if text is None else text[:CELL_MAX] for text in texts]
        size += sum(_AROUND + len((cell or "").encode(errors="replace")) for cell in cells)
        if size > order.bytes_max:
            cut = f"there are more rows than fit into {order.bytes_max} bytes"
            break
        given.append(cells)
    sentences = [cut] if cut else []
    if has_cut_cells:
        sentences.append(f"of cells the first {CELL_MAX} characters are given")
    return QueryRows(columns=list(columns), rows=given, cut="; ".join(sentences))


def cell_text(value: Any) -> str | None:  # Any: a cell, as `plain_rows` makes it
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case _:
            return msgspec.json.encode(value, enc_hook=str).decode()
