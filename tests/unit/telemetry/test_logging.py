import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from headrace.telemetry import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_events_are_json_lines_where_nobody_watches() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    get_logger("headrace.log").info("segment sealed", topic="orders", size=3, payload=b"raw")
    event = json.loads(out.getvalue())
    assert event["event"] == "segment sealed"
    assert event["level"] == "info"
    assert event["component"] == "log"
    assert (event["topic"], event["size"]) == ("orders", 3)
    assert event["timestamp"].endswith("Z")
    assert list(event)[:4] == ["timestamp", "level", "component", "event"]


def test_a_logger_made_before_configuration_follows_it() -> None:
    log = get_logger("early")
    out = io.StringIO()
    configure_logging("warning", stream=out)
    log.info("too quiet")
    log.warning("loud enough")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud enough"]


def test_exceptions_carry_their_stack() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    try:
        raise ValueError("torn page")
    except ValueError:
        get_logger("x").exception("flush failed")
    assert "ValueError: torn page" in json.loads(out.getvalue())["exception"]


def test_a_person_gets_plain_lines() -> None:
    out = io.StringIO()
    configure_logging(form="human", stream=out)
    get_logger("headrace.node").info("listening", door="kafka")
    assert "listening" in out.getvalue()
    assert "door=kafka" in out.getvalue()
    assert "{" not in out.getvalue()


@pytest.mark.parametrize("is_colourless", [False, True])
def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch, is_colourless: bool) -> None:
    if is_colourless:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    configure_logging(stream=out)
    get_logger("headrace.node").info("listening")
    assert ("\x1b[" in out.getvalue()) is not is_colourless


def test_libraries_speak_through_the_same_stream() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    logging.getLogger("uvicorn.error").warning("odd request from %s", "peer")
    logging.getLogger("uvicorn.error").info("chatter")
    (line,) = out.getvalue().splitlines()
    event = json.loads(line)
    assert event["event"] == "odd request from peer"
    assert event["component"] == "uvicorn.error"


def test_a_flood_is_cut_and_the_rest_of_the_log_is_not() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    for number in range(500):
        get_logger("headrace.doors").warning("frame refused", number=number)
    get_logger("headrace.doors").warning("something else")
    events = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert events == ["frame refused"] * 30 + ["something else"]


def test_names_that_clients_choose_do_not_move_the_cursor_of_whoever_reads_the_log() -> None:
    out = io.StringIO()
    configure_logging(form="human", stream=out)
    get_logger("headrace.node").info("group rebalances", group="a\x1b[2J\nforged", reason="\u202e")
    assert "a\\x1b[2J\\nforged" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1


def test_a_log_that_cannot_be_written_breaks_nothing() -> None:
    """Whoever wrote the event goes on: a terminal may be closed, a disk full."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    configure_logging(stream=Gone())
    get_logger("x").error("nobody reads this")
