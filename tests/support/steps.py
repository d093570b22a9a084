"""Work, counted: a bound in seconds fails on a slow machine, and hides a fault on a quick one."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast


class Steps:
    """Instructions that the interpreter executes in this thread, and in those that are started meanwhile. What C code does is one step,
    however long it takes."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        threading.settrace(self._entered)
        try:
            with self.counted_here():
                yield
        finally:
            threading.settrace(cast(Any, None))  # Any: nothing at all is taken, and not declared

    @contextmanager
    def counted_here(self) -> Iterator[None]:
        """In this thread alone."""
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:  # Any: what tracing asks for
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:  # Any: as above
        self.count += 1
        return self._stepped


class Calls:
    """Functions that are called in this thread, those of C too. Coarser than `Steps`, and much cheaper to count."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _seen(self, frame: FrameType, event: str, arg: object) -> None:
        self.count += event in ("call", "c_call")
