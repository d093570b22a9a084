import json

import pytest

from headrace.cli.output import fail, progress, show_fields, show_table

ROWS = [{"name": "orders", "partitions": 12, "extra": 1}, {"name": "x", "partitions": 3, "extra": 2}]


def test_a_table_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(ROWS, columns=("name", "partitions"), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name    partitions",
        "orders          12",
        "x                3",
    ]


def test_a_machine_gets_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(ROWS, columns=("name",), as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS


def test_fields_are_words_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    show_fields({"is_internal": False, "isr": [1, 2], "config": {}, "rack": None}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "is internal  no",
        "isr          1, 2",
        "config       -",
        "rack         -",
    ]


def test_a_failure_is_one_line_on_stderr_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        fail("no such topic")
    assert stopped.value.code == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "headrace: no such topic\n")


def test_progress_is_a_line_per_tenth_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("backfill", 40) as advance:
        for _ in range(3):
            advance(5)
    assert capsys.readouterr().err.splitlines() == ["backfill: 10%", "backfill: 20%", "backfill: 30%"]
