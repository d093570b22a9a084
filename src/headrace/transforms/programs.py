"""Modules compiled, and refused with a sentence where they are not what a transform is.

A module exports `memory`, `alloc`, optionally `dealloc`, and `process_batch` or `process_message`; it may import
`headrace.log` and nothing else. Compiled code belongs to an engine, and any thread may run it in a store of its own.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

import wasmtime

from headrace.errors import Invalid
from headrace.transforms.settings import WasmSettings

BATCH: Final = "process_batch"
MESSAGE: Final = "process_message"
MEMORY: Final = "memory"
ALLOC: Final = ("alloc", "allocate")
DEALLOC: Final = ("dealloc", "deallocate")
LOG_MODULE: Final = "headrace"
LOG_NAME: Final = "log"
_PAGE: Final = 65536
_STACK_BYTES_MAX: Final = 512 * 1024
"""Of Wasm's own stack: deep recursion traps. A thread has eight megabytes."""
_MAGIC: Final = b"\0asm"
_CORE_VERSION: Final = b"\1\0\0\0"
_DEALLOC_IMPORT: Final = '(import "module" "dealloc" (func $dealloc (param i32 i32)))'
_NO_DEALLOC: Final = "(func $dealloc (param i32 i32))"


class Program:
    """One module, compiled. `adapter` runs it record by record; None where it takes whole batches."""

    __slots__ = ("adapter", "alloc", "dealloc", "module", "name")

    def __init__(
        self, name: str, module: wasmtime.Module, *, alloc: str, dealloc: str | None, adapter: wasmtime.Module | None
    ) -> None:
        self.name = name
        self.module = module
        self.alloc = alloc
        self.dealloc = dealloc
        self.adapter = adapter


class Compiler:
    """Makes programs. One for a node: all that it makes belongs to its engine."""

    def __init__(self, settings: WasmSettings) -> None:
        self._settings = settings
        self.engine = wasmtime.Engine(_config())
        self._adapters: dict[bool, wasmtime.Module] = {}

    def compile(self, name: str, code: bytes) -> Program:
        """Takes long, and lets go of the interpreter. Raises `Invalid`, with what is wrong with `code`."""
        if len(code) > self._settings.module_bytes_max:
            raise Invalid(f"module {name} has {len(code)} bytes; the most is {self._settings.module_bytes_max}")
        if not code.startswith(_MAGIC):
            raise Invalid(f"module {name} is not WebAssembly: it begins with {bytes(code[:4])!r}")
        if code[4:8] != _CORE_VERSION:
            raise Invalid(f"module {name} is no core module; components are not run here")
        try:
            module = wasmtime.Module(self.engine, code)
        except wasmtime.WasmtimeError as error:
            raise Invalid(f"module {name} does not compile: {first_line(error)}") from error
        return self._checked(name, module)

    def _checked(self, name: str, module: wasmtime.Module) -> Program:
        for each in module.imports:
            _check_import(name, each)
        exports = {each.name: each.type for each in module.exports if each.name is not None}
        self._check_memory(name, exports.get(MEMORY))
        alloc = _function(name, exports, ALLOC, params=1, results=1)
        dealloc = _function(name, exports, DEALLOC, params=2, results=0, is_needed=False)
        entry = _function(name, exports, (BATCH, MESSAGE), params=2, results=1)
        assert alloc is not None
        adapter = None if entry == BATCH else self._adapter(has_dealloc=dealloc is not None)
        return Program(name, module, alloc=alloc, dealloc=dealloc, adapter=adapter)

    def _check_memory(self, name: str, memory: object) -> None:
        if not isinstance(memory, wasmtime.MemoryType):
            raise Invalid(f"module {name} exports no memory called {MEMORY!r}")
        wanted = memory.limits.min * _PAGE
        if wanted > self._settings.memory_bytes_max:
            limit = self._settings.memory_bytes_max
            raise Invalid(f"module {name} begins with {wanted} bytes of memory; wasm.memory.bytes.max is {limit}")

    def _adapter(self, *, has_dealloc: bool) -> wasmtime.Module:
        adapter = self._adapters.get(has_dealloc)
        if adapter is None:
            text = files("headrace.transforms").joinpath("per_record.wat").read_text()
            assert _DEALLOC_IMPORT in text
            if not has_dealloc:
                text = text.replace(_DEALLOC_IMPORT, "")
                at = text.index("(memory $ours")
                text = f"{text[:at]}{_NO_DEALLOC}\n  {text[at:]}"
            adapter = self._adapters[has_dealloc] = wasmtime.Module(self.engine, text)
        return adapter


def first_line(error: Exception) -> str:
    """wasmtime's errors go on for lines; the last of them that says anything is the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line[:1].isdigit()]
    return (causes[-1].partition(":")[2].strip() if causes else lines[0]) if lines else "no reason given"


def _config() -> wasmtime.Config:
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.max_wasm_stack = _STACK_BYTES_MAX
    # One thread: whoever uploads a module does not get all cores.
    config.parallel_compilation = False
    # The same bytes give the same records on every machine, also where floating point leaves a choice.
    config.cranelift_nan_canonicalization = True
    config.wasm_relaxed_simd_deterministic = True
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = True  # For `per_record.wat`; a store's limits say how many there are.
    return config


def _check_import(name: str, needed: wasmtime.ImportType) -> None:
    said = f"{needed.module}.{needed.name}"
    if (needed.module, needed.name) != (LOG_MODULE, LOG_NAME):
        hint = ""
        if needed.module.startswith("wasi"):
            hint = "; build for wasm32-unknown-unknown: there are no files, clocks, randomness or network here"
        raise Invalid(f"module {name} imports {said}; it may import {LOG_MODULE}.{LOG_NAME} and nothing else{hint}")
    if not isinstance(needed.type, wasmtime.FuncType) or not _has_shape(needed.type, params=2, results=0):
        raise Invalid(f"module {name} imports {said} with another shape than (i32, i32) -> ()")


def _function(
    name: str, exports: Mapping[str, object], names: Sequence[str], *, params: int, results: int, is_needed: bool = True
) -> str | None:
    """Which of `names` the module exports, the first one first."""
    for each in names:
        if each not in exports:
            continue
        kind = exports[each]
        if not isinstance(kind, wasmtime.FuncType) or not _has_shape(kind, params=params, results=results):
            shape = f"({', '.join(['i32'] * params)}) -> {'i32' if results else '()'}"
            raise Invalid(f"module {name} exports {each!r}, which is not a function {shape}")
        return each
    if is_needed:
        raise Invalid(f"module {name} exports no function called {' or '.join(map(repr, names))}")
    return None


def _has_shape(kind: wasmtime.FuncType, *, params: int, results: int) -> bool:
    i32 = wasmtime.ValType.i32()
    return list(kind.params) == [i32] * params and list(kind.results) == [i32] * results
