import json

import pytest

from headrace.cli.output import fail, progress, show_fields, show_table, time_of

ROWS = [{"name": "orders", "partitions": 12, "extra": 1}, {"name": "x", "partitions": 3, "extra": 2}]


def test_a_table_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(ROWS, columns=("name", "partitions"), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name    partitions",
        "orders          12",
        "x                3",
    ]


def test_numbers_stand_on_the_right_also_where_one_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "lag": 1053, "is_on": True},
        {"name": "b", "lag": None, "is_on": False},
    ]
    show_table(rows, columns=("name", "lag", "is_on"), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name   lag  is on",
        "a     1053  yes",
        "b        -  no",
    ]


def test_a_narrow_terminal_loses_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    member = "member-" + "x" * 60
    show_table([{"topic": "orders", "lag": 1053, "member": member}], columns=("topic", "lag", "member"), as_json=False)
    assert capsys.readouterr().out.splitlines() == ["topic    lag  member", f"orders  1053  {member}"]


def test_headings_are_bold_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    show_table(ROWS[:1], columns=("name",), as_json=False)
    assert capsys.readouterr().out == "\x1b[1mname\x1b[0m\norders\n"


def test_what_a_client_chose_as_its_name_does_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([{"client": "a\x1b[2J\nb"}, {"client": "木"}], columns=("client",), as_json=False)
    assert capsys.readouterr().out.splitlines() == ["client", "a\\x1b[2J\\nb", "木"]


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


def test_whole_amounts_have_no_fraction_and_moments_are_utc(capsys: pytest.CaptureFixture[str]) -> None:
    show_fields({"produce": 5_000_000.0, "requests": 12.5, "started": time_of(1_700_000_000_042)}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "produce   5000000",
        "requests  12.5",
        "started   2023-11-14 22:13:20.042 UTC",
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
