"""Runs a program on the records of one batch, and lets it touch nothing else.

Each batch gets a store and an instance of its own: a module remembers nothing, so what it makes of a batch depends on that batch
alone, and what a trap leaves behind is thrown away. A store is used by the thread that made it and by no other. Fuel, the epoch
and the memory's limit hold from before its start function on. It is given no file, socket, clock or randomness; lines that it
logs are counted, and too many of them end it.
"""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import wasmtime

from headrace.errors import Invalid, TransformFailed
from headrace.transforms.batches import Payload
from headrace.transforms.programs import BATCH, LOG_MODULE, LOG_NAME, MEMORY, Compiler, Program, first_line
from headrace.transforms.settings import WasmSettings

LINES_MAX: Final = 64
"""Of one batch: each is a call into the host, which holds up everybody."""
LINE_BYTES_MAX: Final = 1024
TICK_S: Final = 0.01
_TABLE_ELEMENTS_MAX: Final = 100_000
_PAGE: Final = 65536
_head = struct.Struct("<IIq")
"""Of a payload in the module's memory: number of records, zero, base time."""
_answer = struct.Struct("<II")


class Sandbox:
    """One worker's. `run` is for the thread that made it."""

    def __init__(self, compiler: Compiler, settings: WasmSettings) -> None:
        self._engine = compiler.engine
        self._settings = settings
        self._linker = wasmtime.Linker(self._engine)
        line_type = wasmtime.FuncType([wasmtime.ValType.i32(), wasmtime.ValType.i32()], [])
        self._linker.define_func(LOG_MODULE, LOG_NAME, line_type, self._log, access_caller=True)
        self._store: wasmtime.Store | None = None
        self._is_talkative = False
        self.lines: list[str] = []
        """What the program has logged in its last run."""

    def run(self, program: Program, given: Payload) -> Payload:
        """What the program makes of `given`. Raises `TransformFailed`; nothing of the run is left then but its lines."""
        self.lines = []
        self._is_talkative = False
        store = self._store = self._new_store(memories=1 if program.adapter is None else 2)
        try:
            instance = self._linker.instantiate(store, program.module)
            if program.adapter is None:
                return _run_batch(store, instance, program, given, self._settings.memory_bytes_max)
            return _run_records(store, instance, program, program.adapter, given)
        except wasmtime.Trap as trap:
            raise TransformFailed(f"module {program.name} {self._told(trap)}") from trap
        except wasmtime.WasmtimeError as error:
            raise TransformFailed(f"module {program.name} cannot be run: {first_line(error)}") from error
        finally:
            self._store = None
            store.close()

    def try_out(self, program: Program) -> None:
        """Begin it, and give it nothing. Raises `Invalid` where it does not begin."""
        self.lines = []
        self._is_talkative = False
        store = self._store = self._new_store(memories=1 if program.adapter is None else 2)
        try:
            self._linker.instantiate(store, program.module)
        except wasmtime.Trap as trap:
            raise Invalid(f"module {program.name} {self._told(trap)}, before it was given anything") from trap
        except wasmtime.WasmtimeError as error:
            raise Invalid(f"module {program.name} cannot be run: {first_line(error)}") from error
        finally:
            self._store = None
            store.close()

    def _new_store(self, *, memories: int) -> wasmtime.Store:
        store = wasmtime.Store(self._engine)
        store.set_limits(
            memory_size=self._settings.memory_bytes_max,
            table_elements=_TABLE_ELEMENTS_MAX,
            instances=memories,
            tables=8,
            memories=memories,
        )
        store.set_fuel(self._settings.fuel_max)
        store.set_epoch_deadline(max(1, round(self._settings.timeout_ms / 1000 / TICK_S)))
        return store

    def _told(self, trap: wasmtime.Trap) -> str:
        match trap.trap_code:
            case wasmtime.TrapCode.INTERRUPT if self._is_talkative:
                return f"was stopped: it logged more than {LINES_MAX} lines for one batch"
            case wasmtime.TrapCode.INTERRUPT:
                return f"was stopped: it worked on a batch for more than {self._settings.timeout_ms} ms"
            case wasmtime.TrapCode.OUT_OF_FUEL:
                return f"was stopped: it spent more than {self._settings.fuel_max} instructions on a batch"
            case _:
                return f"trapped: {_reason(trap)}"

    def _log(self, caller: wasmtime.Caller, at: int, size: int) -> None:
        """Must not raise: the bindings keep what a callback raised in one place for all threads."""
        if len(self.lines) >= LINES_MAX:
            self._is_talkative = True
            if self._store is not None:
                self._store.set_epoch_deadline(0)  # It ends at its next call or loop.
            return
        memory = caller.get(MEMORY)
        at, size = at & 0xFFFFFFFF, min(size & 0xFFFFFFFF, LINE_BYTES_MAX)
        text = memory.read(caller, at, at + size) if isinstance(memory, wasmtime.Memory) else b""
        self.lines.append(bytes(text).decode("utf-8", "replace"))


class Epochs:
    """Time for the programs that run: a thread that ticks while any does, and sleeps otherwise."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._running = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def ticking(self) -> Iterator[None]:
        with self._changed:
            self._running += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="wasm-epochs", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    def _tick(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running or self._is_closed)
                if not self._running:
                    return
                self._changed.wait_for(lambda: not self._running, timeout=TICK_S)
            self._engine.increment_epoch()

    def close(self) -> None:
        """The thread ends when nothing runs any more: what does must still be stopped in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()


def _run_batch(
    store: wasmtime.Store, instance: wasmtime.Instance, program: Program, given: Payload, bytes_max: int
) -> Payload:
    exports = _exports(instance, store)
    memory, size = exports[MEMORY], _head.size + len(given.records)
    if size > bytes_max:
        raise TransformFailed(
            f"module {program.name} cannot be given {size} bytes of records; wasm.memory.bytes.max is {bytes_max}"
        )
    at = _called(exports[program.alloc], store, size)
    view = _view(store, memory)
    if not at or at + size > len(view):
        raise TransformFailed(f"module {program.name} has no memory for {size} bytes of records: alloc gave {at}")
    _head.pack_into(view, at, given.count, 0, given.base_timestamp_ms)
    view[at + _head.size : at + size] = given.records
    answer = _called(exports[BATCH], store, at, size)
    if not answer:
        return Payload(count=0, base_timestamp_ms=given.base_timestamp_ms, records=b"")
    # The memory may have moved, and be larger.
    view = _view(store, memory)
    if answer + _answer.size > len(view):
        raise TransformFailed(f"module {program.name} answered with a pointer to nowhere: {answer}")
    made, made_size = _answer.unpack_from(view, answer)
    if made_size < _head.size or made + made_size > len(view):
        raise TransformFailed(f"module {program.name} answered with {made_size} bytes at {made} of {len(view)}")
    count, _, base_timestamp_ms = _head.unpack_from(view, made)
    records = bytes(view[made + _head.size : made + made_size])
    return Payload(count=count, base_timestamp_ms=base_timestamp_ms, records=records)


def _run_records(
    store: wasmtime.Store, instance: wasmtime.Instance, program: Program, adapter: wasmtime.Module, given: Payload
) -> Payload:
    exports = _exports(instance, store)
    by_name = {"alloc": program.alloc, "dealloc": program.dealloc or ""}
    imported = [exports[by_name.get(each.name or "", each.name or "")] for each in adapter.imports]
    exports = _exports(wasmtime.Instance(store, adapter, imported), store)
    memory, size = exports[MEMORY], len(given.records)
    missing = size // _PAGE + 1 - memory.size(store)
    try:
        if missing > 0:
            memory.grow(store, missing)
        _view(store, memory)[:size] = given.records
        end = _called(exports["run"], store, given.count, size)
    except wasmtime.Trap as trap:
        raise _at_record(program, trap, exports["record"].value(store), exports["shortage"].value(store)) from trap
    records = bytes(_view(store, memory)[size:end])
    return Payload(count=exports["kept"].value(store), base_timestamp_ms=given.base_timestamp_ms, records=records)


def _at_record(program: Program, trap: wasmtime.Trap, record: int, shortage: int) -> Exception:
    """The trap itself where it is a limit of the batch, which no single record is at fault for."""
    if trap.trap_code in (wasmtime.TrapCode.INTERRUPT, wasmtime.TrapCode.OUT_OF_FUEL):
        return trap
    reason = {1: "no memory is left for what it makes", 2: "its alloc gave no memory"}.get(shortage)
    reason = reason or f"trapped: {_reason(trap)}"
    return TransformFailed(f"module {program.name}, record {record} of the batch: {reason}", [(record, reason)])


def _exports(
    instance: wasmtime.Instance, store: wasmtime.Store
) -> Any:  # Any: of several kinds, checked when it was compiled
    return instance.exports(store)


def _called(function: Any, store: wasmtime.Store, *arguments: int) -> int:  # Any: an export may be of several kinds
    """An address or a size, as the 32 bits without a sign that they are."""
    result: int = function(store, *arguments)
    return result & 0xFFFFFFFF


def _view(store: wasmtime.Store, memory: wasmtime.Memory) -> memoryview:
    """The whole memory. Good until the program runs again."""
    return memoryview(memory.get_buffer_ptr(store)).cast("B") if memory.data_len(store) else memoryview(bytearray())


def _reason(trap: wasmtime.Trap) -> str:
    message = trap.message.rpartition("wasm trap:")[2].strip() or trap.message
    where = next((frame.func_name for frame in trap.frames if frame.func_name), None)
    return f"{message.splitlines()[0]} in {where}" if where else message.splitlines()[0]
