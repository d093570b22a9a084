"""A result that comes later, without the cost of a task.

Most requests are answered by something that is already under way (a flush, an append that wakes a fetch). A `Deferred`
is a one-shot of two attributes; an `asyncio.Future` with its loop scheduling costs several times as much, per request.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
_PENDING: Final[Any] = object()  # Any: it stands in for a value of whatever type is waited for


class Deferred(Generic[T]):
    """Resolved or rejected once, on the event loop; `then` calls back at that moment, or at once when it has passed."""

    __slots__ = ("_callback", "_error", "_value", "on_abandoned")

    def __init__(self) -> None:
        self._value: T = _PENDING
        self._error: Exception | None = None
        self._callback: Callable[[Deferred[T]], None] | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Set by whoever will resolve it, to hear that nobody waits any more."""

    @classmethod
    def resolved(cls, value: T) -> "Deferred[T]":
        deferred = cls()
        deferred._value = value
        return deferred

    @property
    def is_done(self) -> bool:
        return self._value is not _PENDING or self._error is not None

    def resolve(self, value: T) -> None:
        if self.is_done:
            return
        self._value = value
        self._settle()

    def reject(self, error: Exception) -> None:
        if self.is_done:
            return
        self._error = error
        self._settle()

    def _settle(self) -> None:
        # Both sides are let go. They mostly hold us, too, and such circles are found by nobody but the garbage collector,
        # which stops the loop for milliseconds.
        callback, self._callback, self.on_abandoned = self._callback, None, None
        if callback is not None:
            callback(self)

    def abandon(self) -> None:
        """Nobody waits for this any more; what would have come of it may be given up."""
        self._callback = None
        on_abandoned, self.on_abandoned = self.on_abandoned, None
        if not self.is_done and on_abandoned is not None:
            on_abandoned()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        assert self._value is not _PENDING, "asked for a result that is not there yet"
        return self._value

    def then(self, callback: "Callable[[Deferred[T]], None]") -> None:
        assert self._callback is None, "somebody waits for this already"
        if self.is_done:
            callback(self)
        else:
            self._callback = callback

    def __await__(self) -> Generator[object, None, T]:
        if not self.is_done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()
