"""Several processes of one cluster under one: started together, started again when one dies, stopped in order.

Children are in sessions of their own, so that a terminal's Ctrl-C reaches only this process, which then stops them in order. Should it be
killed, Linux ends them too.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cli.output import note

AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Before the first, second … start of a child that keeps dying. One that has run for a minute begins anew."""
STOP_S: Final = 60.0
"""For a child to stop in order, before it is killed."""
_STEADY_S: Final = 60.0
_LOOK_S: Final = 0.05
_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Child:
    name: str
    command: Sequence[str]
    log: Path
    """Where everything it says goes."""
    ready: Path | None = None
    """A file that it writes once it serves, and that is gone before it starts."""


class Supervisor:
    """`stages` start in this order, all at once, and stop in the reverse order, one stage after the other."""

    def __init__(self, stages: Sequence[Sequence[Child]]) -> None:
        self._stages = stages
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._is_stopping = False
        self._told = asyncio.Event()

    def stop(self) -> None:
        """Told twice, it waits for nobody."""
        if self._told.is_set():
            for process in self._running.values():
                _send(process, signal.SIGKILL)
        self._told.set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Until told to stop. `on_ready` is called once, when every child that says so has served."""
        keeping: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            for stage in self._stages:
                for child in stage:
                    keeping[child.name] = tasks.create_task(self._keep(child))
            waiting = tasks.create_task(self._await_ready(on_ready))
            await self._told.wait()
            waiting.cancel()
            self._is_stopping = True
            for stage in reversed(self._stages):
                await self._stop_stage(stage, keeping)

    async def _keep(self, child: Child) -> None:
        deaths = 0
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            begun = loop.time()
            if child.ready is not None:
                child.ready.unlink(missing_ok=True)
            process = self._running[child.name] = await _spawn(child)
            code = await process.wait()
            if self._is_stopping:
                return
            deaths = 0 if loop.time() - begun > _STEADY_S else deaths + 1
            pause_s = AGAIN_S[min(deaths, len(AGAIN_S)) - 1] if deaths else AGAIN_S[0]
            note(f"{child.name} ended with {code} and is started again; its log is {child.log}")
            await asyncio.sleep(pause_s)

    async def _await_ready(self, on_ready: Callable[[], None]) -> None:
        files = [child.ready for stage in self._stages for child in stage if child.ready is not None]
        while True:
            if all(path.exists() for path in files):
                break
            await asyncio.sleep(_LOOK_S)
        on_ready()

    async def _stop_stage(self, stage: Sequence[Child], keeping: dict[str, asyncio.Task[None]]) -> None:
        processes = [self._running[child.name] for child in stage if child.name in self._running]
        for process in processes:
            _send(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(process.wait() for process in processes))
        except TimeoutError:
            for process in processes:
                _send(process, signal.SIGKILL)
        for child in stage:
            # One that waits to be started again has no process to wait for.
            keeping[child.name].cancel()


async def _spawn(child: Child) -> asyncio.subprocess.Process:
    child.log.parent.mkdir(parents=True, exist_ok=True)
    with child.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *child.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent if hasattr(ctypes, "CDLL") and os.uname().sysname == "Linux" else None,
        )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
