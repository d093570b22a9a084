"""A node, a broker or a controller as a process: its event loop, its signals, its exit code."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
import uvloop

from headrace.config.settings import NodeSettings
from headrace.errors import HeadraceError
from headrace.node.open_files import raise_open_file_limit
from headrace.node.service_manager import ServiceManager

_SWITCH_INTERVAL_S: Final = 0.0005
"""Threads come back from the disk wanting the interpreter: the default of 5 ms would be their latency."""
_GC_THRESHOLDS: Final = (20_000, 20, 100)
"""Requests make objects that die young without cycles: looking for cycles every 700 of them only costs."""

_ARENA_MAX: Final = -8
"""What glibc's `mallopt` calls the number of its arenas."""
_ARENAS: Final = 2
"""Each keeps up to 64 MiB that its threads have freed, and there may be eight to a core. Threads here allocate little, and wait for the
interpreter anyway."""

log = structlog.get_logger(__name__)


def run(
    settings: NodeSettings, *, on_ready: Callable[[Mapping[str, tuple[str, int]]], None] = lambda endpoints: None
) -> int:
    """Run until SIGTERM, SIGINT or a fault; 0 after a clean stop, 1 otherwise. A second signal hurries the stop.

    `on_ready` is told where the doors are, once all of them are open. SIGHUP, by which log rotation and closing terminals say hello, changes nothing: settings are read at the start.
    """
    return _run(_serve(settings, on_ready))


def run_broker(
    settings: NodeSettings, *, on_ready: Callable[[Mapping[str, tuple[str, int]]], None] = lambda endpoints: None
) -> int:
    """As `run`, for a broker of several. `on_ready` is told of every incarnation."""
    return _run(_serve_broker(settings, on_ready))


def run_controller(settings: NodeSettings) -> int:
    return _run(_serve_controller(settings))


def _run(serving: Coroutine[Any, Any, int]) -> int:
    _bound_arenas()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serving)


@contextmanager
def _loading() -> Iterator[None]:
    """Modules stay for good. Looking for garbage among them again and again would take a seventh of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()


def _bound_arenas() -> None:
    """Before threads begin. Another C library has no such arenas, and no such function."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, _ARENAS)


async def _serve(settings: NodeSettings, on_ready: Callable[[Mapping[str, tuple[str, int]]], None]) -> int:
    # Here, for a controller is up in half the time without it.
    with _loading():
        from headrace.node.node import Node

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if ended.done():
            node.hurry()
        else:
            ended.set_result(code)

    def fault(error: HeadraceError) -> None:
        log.error("this node has failed and stops", reason=str(error))
        end(1)

    manager = ServiceManager(os.environ)
    node = Node(settings, on_fault=fault)
    _on_signals(lambda: end(0))
    raise_open_file_limit()
    await node.start()
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    on_ready(node.endpoints)
    manager.ready()
    code = await ended
    log.info("stopping", clean=code == 0)
    manager.stopping()
    await node.stop(is_clean=code == 0)
    log.info("stopped")
    return code


async def _serve_broker(settings: NodeSettings, on_ready: Callable[[Mapping[str, tuple[str, int]]], None]) -> int:
    # Here, as the controller below: a node alone starts without loading what only several processes need.
    with _loading():
        from headrace.node.broker import BrokerProcess

    # What the broker is called is written before its directory is held.
    os.umask(0o077)
    manager = ServiceManager(os.environ)

    def tell(endpoints: Mapping[str, tuple[str, int]]) -> None:
        on_ready(endpoints)
        manager.ready()

    def stop() -> None:
        manager.stopping()
        process.stop()

    process = BrokerProcess(settings, on_ready=tell)
    _on_signals(stop)
    raise_open_file_limit()
    return await process.run()


async def _serve_controller(settings: NodeSettings) -> int:
    with _loading():
        from headrace.node.controller import ControllerNode

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def fault(error: HeadraceError) -> None:
        log.error("this controller has failed and stops", reason=str(error))
        end(1)

    manager = ServiceManager(os.environ)
    controller = ControllerNode(settings, on_fault=fault)
    _on_signals(lambda: end(0))
    raise_open_file_limit()
    starting = asyncio.create_task(controller.start())
    either: tuple[asyncio.Future[Any], ...] = (starting, ended)
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    else:
        starting.result()
        manager.ready()
    code = await ended
    manager.stopping()
    await controller.stop()
    log.info("stopped")
    return code


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP changes nothing; settings are read at the start")
