"""Transforms of a node: loads modules when they are needed, and runs them on threads of their own.

Nothing is loaded, and no thread begins, before the first topic has a module; `wasmtime` itself is imported then. Modules that fail
rest before they get another batch (`resting.py`).
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.clock import Clock
from headrace.errors import Corrupted, HeadraceError, Invalid, NotFound, StoreUnavailable, TransformFailed
from headrace.records.batch import read_header
from headrace.telemetry.logging import get_logger
from headrace.transforms.batches import transform
from headrace.transforms.metrics import TransformMetrics
from headrace.transforms.modules import ModuleInfo, Modules
from headrace.transforms.resting import Resting
from headrace.transforms.settings import WasmSettings

if TYPE_CHECKING:
    from headrace.transforms.programs import Program
    from headrace.transforms.sandbox import Sandbox

PROGRAMS_MAX: Final = 64
"""Compiled at once; the one that was used last stays longest."""

log = get_logger(__name__)


class Made(NamedTuple):
    """What came of one batch: a batch, or why there is none; and what the module logged."""

    batch: bytes | None
    error: HeadraceError | None
    lines: list[str]
    took_ms: int


class Transforms:
    def __init__(self, settings: WasmSettings, modules: Modules, clock: Clock) -> None:
        self._settings = settings
        self.modules = modules
        self._clock = clock
        self._host: _Host | None = None
        self._programs: OrderedDict[str, asyncio.Future[Program]] = OrderedDict()
        self._long_ms = settings.timeout_ms // 2
        self._resting = Resting(self._long_ms)
        self.metrics = TransformMetrics()
        self.on_lines: Callable[[str, str, int, list[str]], None] = lambda module, topic, partition, lines: None
        """Told of the lines that a module has logged, with the topic and partition of the batch."""

    async def upload(self, name: str, code: bytes) -> ModuleInfo:
        """Compile it, try it out on nothing, and keep it. Raises `Invalid` with what is wrong."""
        program = await self.check(name, code)
        return await self.modules.add(name, code, takes_batches=program.adapter is None)

    async def check(self, name: str, code: bytes) -> "Program":
        """Whether it compiles, and begins: a start function that traps would refuse every batch."""
        host = self._opened()
        return await asyncio.get_running_loop().run_in_executor(host.compilers, host.compile, name, code)

    async def prepare(self, module_id: str) -> None:
        """Have it compiled before its first batch comes."""
        await self._program(module_id)

    async def run(self, module_id: str, batch: bytes, *, topic: str, partition: int, keys_needed: bool) -> bytes:
        """What the module makes of a batch whose bytes have been checked.

        Raises `TransformFailed` or `InvalidRecords` for this batch, and `StoreUnavailable` where the module cannot be had.
        """
        program = await self._program(module_id)
        await self._rest(module_id)
        host = self._opened()
        job = partial(host.run, program, batch, keys_needed)
        made = await asyncio.get_running_loop().run_in_executor(host.workers, job)
        self._note(module_id, batch, made)
        if made.lines:
            self.on_lines(module_id, topic, partition, made.lines)
        if made.error is not None:
            raise made.error
        assert made.batch is not None
        return made.batch

    async def beside(self, work: Callable[[], bytes]) -> bytes:
        """Something else about a batch that may take long."""
        return await asyncio.get_running_loop().run_in_executor(self._opened().workers, work)

    def _note(self, module_id: str, batch: bytes, made: Made) -> None:
        metrics = self.metrics
        metrics.wasm_busy_ms_total += made.took_ms
        metrics.wasm_records_total += read_header(batch).record_count
        if isinstance(made.error, TransformFailed):
            metrics.wasm_failures_total += 1
            rest_ms = self._resting.failed(module_id, made.took_ms, self._clock.monotonic_ms())
            if made.took_ms >= self._long_ms:
                log.warning("module rests after it was stopped", module=module_id, milliseconds=rest_ms)
        elif made.error is None:
            self._resting.worked(module_id)
            metrics.wasm_batches_total += 1

    async def _rest(self, module_id: str) -> None:
        while True:
            left_ms = self._resting.left_ms(module_id, self._clock.monotonic_ms())
            if not left_ms:
                return
            await asyncio.sleep(left_ms / 1000)

    async def _program(self, module_id: str) -> "Program":
        loading = self._programs.get(module_id)
        if loading is None:
            loading = self._programs[module_id] = asyncio.ensure_future(self._load(module_id))
            loading.add_done_callback(lambda done: self._loaded(module_id, done))
            while len(self._programs) > PROGRAMS_MAX:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(module_id)
        return await asyncio.shield(loading)

    def _loaded(self, module_id: str, done: "asyncio.Future[Program]") -> None:
        if done.cancelled() or done.exception() is not None:
            # Whoever comes next tries again.
            self._programs.pop(module_id, None)

    async def _load(self, module_id: str) -> "Program":
        host = self._opened()
        try:
            code = await self.modules.code(await self.modules.get(module_id))
            job = partial(host.compile, module_id, code)
            return await asyncio.get_running_loop().run_in_executor(host.compilers, job)
        except (NotFound, Corrupted, Invalid) as error:
            log.error("a topic's module cannot be had", module=module_id, reason=str(error))
            raise StoreUnavailable(
                f"module {module_id} cannot be had, and nothing is taken without it: {error}"
            ) from error

    def _opened(self) -> "_Host":
        if self._host is None:
            self._host = _Host(self._settings, self._clock)
        return self._host

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


class _Host:
    """The engine and its threads."""

    def __init__(self, settings: WasmSettings, clock: Clock) -> None:
        # Here, for most nodes run no module.
        from headrace.transforms.programs import Compiler
        from headrace.transforms.sandbox import Epochs

        self._settings = settings
        self._clock = clock
        self._compiler: Compiler = Compiler(settings)
        self._epochs: Epochs = Epochs(self._compiler.engine)
        self._sandboxes = threading.local()
        self.workers = ThreadPoolExecutor(settings.workers, thread_name_prefix="wasm")
        self.compilers = ThreadPoolExecutor(1, thread_name_prefix="wasm-compiler")

    def compile(self, name: str, code: bytes) -> "Program":
        program = self._compiler.compile(name, code)
        with self._epochs.ticking():
            self._sandbox().try_out(program)
        return program

    def run(self, program: "Program", batch: bytes, keys_needed: bool) -> Made:
        sandbox, started_ms = self._sandbox(), self._clock.monotonic_ms()
        made, refused = None, None
        try:
            with self._epochs.ticking():
                made = transform(batch, partial(sandbox.run, program), keys_needed=keys_needed)
        except HeadraceError as error:
            refused = error
        return Made(made, refused, sandbox.lines, self._clock.monotonic_ms() - started_ms)

    def _sandbox(self) -> "Sandbox":
        """This thread's own."""
        from headrace.transforms.sandbox import Sandbox

        found: Sandbox | None = getattr(self._sandboxes, "mine", None)
        if found is None:
            found = self._sandboxes.mine = Sandbox(self._compiler, self._settings)
        return found

    def close(self) -> None:
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.compilers.shutdown(wait=False, cancel_futures=True)
        self._epochs.close()
