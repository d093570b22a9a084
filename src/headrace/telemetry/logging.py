"""Structured events on stderr: coloured lines for a person, JSON lines for everything else.

Modules call `get_logger()` at import, before anybody has configured anything; the logger binds to the
configuration at its first event. Standard-library loggers (uvicorn, py4j, obstore) come out in the same form.
Stdout stays free for what a command was asked to print.
"""

import contextlib
import logging
import os
import sys
from typing import Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from headrace.telemetry.floods import Floods
from headrace.telemetry.held_lines import HeldLines
from headrace.telemetry.terminal import printable

Logger = structlog.stdlib.BoundLogger
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "human", "json"]

_OPENING = ("timestamp", "level", "component", "event")
_STACKS = frozenset({"exception", "stack"})
"""Fields of many lines."""
_JSON = msgspec.json.Encoder(enc_hook=repr)


def get_logger(name: str) -> Logger:
    """A logger whose events carry `component`: `name` without the leading `headrace.`; pass `__name__`."""
    return cast(Logger, structlog.get_logger(name))


def configure_logging(
    level: LogLevel = "info",
    *,
    form: LogFormat = "auto",
    stream: TextIO | None = None,
    held: HeldLines | None = None,
) -> None:
    """Send every later event to `stream` (stderr), through `held` if there is one. Call once, from the process's entry point."""
    out = held.loud if held is not None else stream or sys.stderr
    quiet = held.quiet if held is not None else out
    is_human = form == "human" or (form == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _name_component,
    ]
    last: list[Processor] = (
        [
            _neutralise,
            structlog.dev.ConsoleRenderer(colors=out.isatty() and "NO_COLOR" not in os.environ, pad_event_to=32),
        ]
        if is_human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_as_json)]
    )
    threshold = getattr(logging, level.upper())
    structlog.configure(
        processors=[Floods(), *shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *names: _NamedLogger(out, quiet, *names),
        cache_logger_on_first_use=stream is None,
    )
    _adopt_standard_logging(out, threshold, shared, last)


def _adopt_standard_logging(out: TextIO, threshold: int, shared: list[Processor], last: list[Processor]) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries are chatty at info; what they consider a warning is what an operator may want to see.
    root.setLevel(max(threshold, logging.WARNING))


class _NamedLogger(structlog.WriteLogger):
    """Writes lines, and remembers for whom. A terminal that was closed, or a full disk, is no reason to fail."""

    def __init__(self, out: TextIO, quiet: TextIO, name: str = "") -> None:
        super().__init__(out)
        self.name = name
        self._quiet = structlog.WriteLogger(quiet)

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            super().msg(message)

    def info(self, message: str) -> None:
        with contextlib.suppress(OSError):
            self._quiet.msg(message)

    debug = info
    log = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _neutralise(logger: _NamedLogger | logging.Logger, method: str, event: EventDict) -> EventDict:
    """Names in events are chosen by clients, and a person reads these on a terminal."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _STACKS:
            event[name] = printable(value)
    return event


def _name_component(logger: _NamedLogger | logging.Logger, method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    name: str = record.name if record is not None else logger.name
    if name:
        event["component"] = name.removeprefix("headrace.")
    return event


def _as_json(event: dict[str, object], **_: object) -> str:
    # When, how bad, where and what come first: these lines are read by people too, in a hurry.
    opening = {name: event.pop(name) for name in _OPENING if name in event}
    return _JSON.encode(opening | event).decode()
