import io
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog

from headrace.telemetry import configure_logging, get_logger
from headrace.telemetry.held_lines import HeldLines


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def held(out: io.StringIO) -> HeldLines:
    held = HeldLines(out)
    configure_logging(form="human", held=held)
    return held


def say_all() -> None:
    get_logger("a").info("door open")
    get_logger("a").warning("few files")
    logging.getLogger("library").error("not well")


def test_nothing_is_shown_while_a_start_goes_well(held: HeldLines, out: io.StringIO) -> None:
    say_all()
    assert out.getvalue() == ""


def test_after_a_good_start_only_what_is_worth_a_warning_is_shown_and_then_everything(
    held: HeldLines, out: io.StringIO
) -> None:
    say_all()
    held.show_loud()
    shown = out.getvalue()
    assert "door open" not in shown
    assert shown.index("few files") < shown.index("not well")
    get_logger("a").info("later")
    assert "later" in out.getvalue()


def test_after_a_failed_start_every_line_is_shown_in_order(held: HeldLines, out: io.StringIO) -> None:
    say_all()
    held.show_all()
    held.show_all()
    shown = out.getvalue()
    assert shown.index("door open") < shown.index("few files") < shown.index("not well")
    assert shown.count("door open") == 1


def test_a_start_that_takes_long_is_watched(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldLines(out, seconds=0)
    configure_logging(form="human", held=held)
    say_all()
    shown = threading.Event()
    monkeypatch.setattr(out, "flush", shown.set)
    held.start()
    assert shown.wait(60)
    assert "door open" in out.getvalue()
