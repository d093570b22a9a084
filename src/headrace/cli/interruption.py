"""SIGTERM ends a command as Ctrl-C does: what it holds is given back, as its place in a consumer group."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(SystemExit):
    """By SIGTERM; the exit status is the one a shell would give."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def ended_in_order() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
