"""Virtual time: an event loop whose clock moves only when nobody has anything left to do.

No thread runs and no socket is open, so the order in which things happen depends on the seed alone. What real threads do
(`run_in_executor`) is a `Job` that runs at a later virtual moment. Everything scheduled from within a node belongs to its
`Life`: a life that is killed is never called again, one that is paused is called later.
"""

import asyncio
import contextlib
import contextvars
import itertools
import random
import selectors
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")
BEGINNING_S: Final = 1000.0
CALLS_MAX: Final = 2_000_000
"""Of one run. Whoever needs more goes round in circles."""
_QUICK_S: Final = (0.00005, 0.0008)
_SLOW_S: Final = (0.001, 0.02)

Call = tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]


OWNER: Final["contextvars.ContextVar[Life | None]"] = contextvars.ContextVar("owner", default=None)


class Stuck(Exception):
    """Everybody waits for somebody else."""


class Life:
    """One run of a process, from its start to its end."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self.context = contextvars.Context()
        """What runs in it belongs to this life."""
        self.context.run(OWNER.set, self)
        self.is_dead = False
        self.is_paused = False
        self.slowness = 1.0
        """How many times longer the work of threads takes."""
        self.jobs: dict[Job, None] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._held: list[Call] = []
        self._lanes: dict[Executor, list[float]] = {}
        """When each thread of an executor is free again."""

    def call(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._held.append((callback, arguments, contextvars.copy_context()))
            return
        callback(*arguments)

    def resume(self, loop: "SimulatedLoop") -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for callback, arguments, context in held:
            loop.call_soon(callback, *arguments, context=context)

    def end_of_job(self, executor: Executor | None, now_s: float) -> float:
        """When a job that is handed over now is done. The threads of an executor take turns."""
        took_s = self._chance.uniform(*(_SLOW_S if self._chance.random() < 0.02 else _QUICK_S)) * self.slowness
        if executor is None:
            return now_s + took_s
        workers = executor._max_workers if isinstance(executor, ThreadPoolExecutor) else 1
        lanes = self._lanes.setdefault(executor, [0.0] * workers)
        first = lanes.index(min(lanes))
        lanes[first] = max(lanes[first], now_s) + took_s
        return lanes[first]

    def bury(self) -> None:
        """Nothing of a dead life runs on when its objects are collected: its coroutines are closed here, unheard."""
        assert self.is_dead
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if isinstance(coroutine, Coroutine):
                with contextlib.suppress(BaseException):
                    coroutine.close()
        self.tasks.clear()
        self.jobs.clear()
        self._held.clear()


class Job:
    """What a thread was asked to do."""

    def __init__(self, work: Callable[[], Any], future: "asyncio.Future[Any]", life: Life | None) -> None:
        self.work = work
        self._future = future
        self._life = life
        self.is_done = False
        if life is not None:
            life.jobs[self] = None

    def run(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        if self._life is not None:
            del self._life.jobs[self]
        try:
            result = self.work()
        except Exception as error:
            if not self._future.done():
                self._future.set_exception(error)
        else:
            if not self._future.done():
                self._future.set_result(result)


class _MovingSelector(selectors.DefaultSelector):
    """Moves the clock instead of waiting."""

    loop: "SimulatedLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The loop's own pipe is always there, and nobody writes to it. Other descriptors are real ones, say an eventfd.
        ready = super().select(0) if len(self.get_map()) > 1 else []
        if not ready and (timeout is None or timeout > 0):
            self.loop.pass_time(timeout)
        return ready


class _Task(asyncio.Task[Any]):
    """A set of tasks is gone through in the same order in every process."""

    _serials = itertools.count()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._serial = next(self._serials)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._serial


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, chance: random.Random) -> None:
        selector = _MovingSelector()
        selector.loop = self
        self._now_s = BEGINNING_S
        self._calls = 0
        self._chance = chance
        super().__init__(selector)
        self._clock_resolution = 1e-7
        self.set_task_factory(_make_task)
        self.outside = contextvars.Context()
        """What runs in it belongs to nobody: the world around the nodes."""
        self.listen: Callable[..., Any] | None = None
        """Opens a listener: the network's part."""
        self.connect: Callable[..., Any] | None = None
        """Opens a connection: the network's part, too."""

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float | None) -> None:
        if seconds is None:
            raise Stuck(f"at {self._now_s:.3f} s")
        self._now_s += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        life = OWNER.get() if context is None else context.get(OWNER)
        self._calls += 1
        if self._calls > CALLS_MAX:
            raise Stuck(f"{CALLS_MAX} calls, and no end at {self._now_s:.3f} s")
        if life is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(life.call, callback, args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        life = OWNER.get() if context is None else context.get(OWNER)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, life.call, callback, args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        return self.start_job(executor, lambda: func(*args))[1]

    def start_job(self, executor: Executor | None, work: Callable[[], T]) -> tuple[Job, "asyncio.Future[T]"]:
        life = OWNER.get()
        future: asyncio.Future[T] = self.create_future()
        job = Job(work, future, life)
        end_s = life.end_of_job(executor, self._now_s) if life is not None else self._now_s
        self.call_at(end_s, job.run)
        return job, future

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.listen is not None, "there is no network"
        return self.listen(protocol_factory, host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        assert self.connect is not None, "there is no network"
        protocol = protocol_factory()
        return await self.connect(protocol, (host, port)), protocol

    def create_task_in(self, life: Life, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        return self.create_task(work, name=name, context=life.context.copy())


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
) -> "asyncio.Task[T]":
    task = _Task(coroutine, loop=loop, **options)
    context: contextvars.Context | None = options.get("context")
    life = OWNER.get() if context is None else context.get(OWNER)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(life.tasks.pop)
    return task


class SimulatedClock:
    """A machine's clocks: the wall clock may be set, the other one never."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)
