"""Rows of a query as text, as many as fit."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from headrace.pipeline.sql.messages import Column, QueryOrder
from headrace.pipeline.sql.results import CELL_MAX, cell_text, fit

COLUMN = [Column(name="a", type="string")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("<b>", "<b>"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (0.1, "0.1"),
        (float("inf"), "inf"),
        (Decimal("12345678901234567890.123456789"), "12345678901234567890.123456789"),
        ({"n": 2**63 - 1, "m": [None, True]}, '{"n":9223372036854775807,"m":[null,true]}'),
        ([], "[]"),
        (timedelta(days=1), '"P1D"'),
    ],
)
def test_every_value_keeps_all_its_digits(value: Any, text: str | None) -> None:  # Any: a cell
    assert cell_text(value) == text


def order(*, rows: int = 10, size: int = 1000) -> QueryOrder:
    return QueryOrder(query="", rows_max=rows, bytes_max=size)


def test_what_fits_exactly_is_whole_and_one_more_is_not() -> None:
    assert fit(COLUMN, [["x"]] * 3, order(rows=3)).cut == ""
    cut = fit(COLUMN, [["x"]] * 4, order(rows=3))
    assert (len(cut.rows), cut.cut) == (3, "there are more rows than the 3 that were asked for")


def test_bytes_are_counted_and_not_characters() -> None:
    assert len(fit(COLUMN, [["é" * 10]] * 9, order(size=120)).rows) == 5
    assert "fit into 120 bytes" in fit(COLUMN, [["é" * 10]] * 9, order(size=120)).cut
    assert fit(COLUMN, [["é" * 10]] * 5, order(size=120)).cut == ""


def test_cells_without_a_value_count_too() -> None:
    found = fit(COLUMN * 100, [[None] * 100] * 9, order(size=1000))
    assert (len(found.rows), "fit into" in found.cut) == (2, True)


def test_a_long_cell_is_cut_and_that_is_said() -> None:
    found = fit(COLUMN, [["x" * CELL_MAX], ["y" * (CELL_MAX + 1)]], order(size=10**6))
    assert [len(row[0] or "") for row in found.rows] == [CELL_MAX, CELL_MAX]
    assert found.cut == f"of cells the first {CELL_MAX} characters are given"
    assert fit(COLUMN, [["x" * CELL_MAX]], order(size=10**6)).cut == ""
