"""An event loop whose time passes only while nobody works: hours of waiting take seconds, with real threads and files.

Time jumps to the next timer once nothing is ready, no thread of an executor works for the loop, and nobody who was named
with `watch` says that it is busy (a native thread is not seen otherwise).
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_LOOK_S: Final = 0.0005


class _IdleSelector(selectors.DefaultSelector):
    """Asks the loop what to do with the time it would have to wait."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if found:
            return found
        if timeout is None or self.loop.is_worked_for:
            return super().select(_LOOK_S)
        self.loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _IdleSelector()
        selector.loop = self
        self._virtual_s = 1000.0
        self._jobs = 0
        self._watched: list[Callable[[], bool]] = []
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_s

    def pass_time(self, seconds: float) -> None:
        # A little more: a timer that is due at exactly this time must not find itself early by a rounding error.
        self._virtual_s += seconds + 1e-9

    def watch(self, is_busy: Callable[[], bool]) -> None:
        self._watched.append(is_busy)

    @property
    def is_worked_for(self) -> bool:
        return self._jobs > 0 or any(is_busy() for is_busy in self._watched)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, future: object) -> None:
        self._jobs -= 1


class VirtualClock:
    """The loop's time, as the node asks for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


def run_virtually(work: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> _T:  # Any: asyncio's own business
    """Run `work` to its end on a loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
