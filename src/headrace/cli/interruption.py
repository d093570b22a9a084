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


@contextmanager
def brought_to_its_end() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM waits for what is done herein; a second one does not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held: list[int] = []

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        give_back()

    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        give_back()
    if held:
        signal.raise_signal(held[0])


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
