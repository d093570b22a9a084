"""Wasm transforms: what modules make of a core, one that copies and cuts the bytes of each record, and one that parses JSON.

The host alone, as a broker's worker thread runs it: opening the batch, the border to Wasm, checking what came back, the new CRC. No
socket and no log, so the broker that is started beside it does nothing. The rate is records for each second of the thread's own CPU time,
which a busy machine changes little.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import wasmtime

from headrace.bench.case import Case, Workload
from headrace.bench.errors import LoadFailed
from headrace.bench.rivals import Broker
from headrace.bench.scale import Scale
from headrace.bench.serde_module import serde_module
from headrace.records.batch import Codec, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.transforms.batches import transform
from headrace.transforms.programs import Compiler
from headrace.transforms.sandbox import Epochs, Sandbox
from headrace.transforms.settings import WasmSettings

_RECORDS: Final = 1000
_RECORD_BYTES: Final = 1024
_SECONDS: Final = 2.0

_CUT: Final = """
(module
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 1024))
  (func $alloc (export "alloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $next))
    (global.set $next (i32.add (local.get $at) (local.get $size)))
    (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
      (then
        (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))) (i32.const -1))
          (then (unreachable)))))
    (local.get $at))
  (func $answer (param $at i32) (param $size i32) (result i32)
    (i32.store (i32.const 8) (local.get $at))
    (i32.store (i32.const 12) (local.get $size))
    (i32.const 8))
  (func (export "{entry}") (param $at i32) (param $size i32) (result i32)
    (local $made i32)
    (local.set $made (call $alloc (local.get $size)))
    {work}
    (call $answer (local.get $made) {size})))
"""
_PER_RECORD: Final = (
    _CUT.replace("{entry}", "process_message")
    .replace(
        "{work}",
        """(global.set $next (i32.const 1024))
    (memory.copy (local.get $made) (i32.add (local.get $at) (i32.const 8)) (i32.sub (local.get $size) (i32.const 16)))""",
    )
    .replace("{size}", "(i32.sub (local.get $size) (i32.const 16))")
)
"""Eight bytes less at both ends of each value."""
_WHOLE: Final = (
    _CUT.replace("{entry}", "process_batch")
    .replace("{work}", "(memory.copy (local.get $made) (local.get $at) (local.get $size))")
    .replace("{size}", "(local.get $size)")
)


@dataclass(frozen=True, slots=True)
class _Module:
    code: Callable[[], bytes | bytearray]
    values: Callable[[], list[bytes]]
    codec: Codec = Codec.NONE


def _bytes() -> list[bytes]:
    """Half of each record repeats, as text does."""
    return [number.to_bytes(8, "big") * (_RECORD_BYTES // 16) + bytes(_RECORD_BYTES // 2) for number in range(_RECORDS)]


def _json() -> list[bytes]:
    """Orders of a shop: three fields, and lines of four fields each, to 1 KiB."""
    made = []
    for number in range(_RECORDS):
        lines = [
            {"product": f"product-{number + line}", "count": line, "price": 9.75 + line, "is_gift": line % 2 == 0}
            for line in range(13)
        ]
        order = {"id": number, "email": f"customer-{number}@example.org", "lines": lines}
        made.append(msgspec.json.encode(order).ljust(_RECORD_BYTES)[:_RECORD_BYTES])
    return made


_MODULES: Final = {
    "copies and cuts each 1 KiB record": _Module(partial(wasmtime.wat2wasm, _PER_RECORD), _bytes),
    "the same, zstd": _Module(partial(wasmtime.wat2wasm, _PER_RECORD), _bytes, Codec.ZSTD),
    "copies whole batches of 1 KiB records": _Module(partial(wasmtime.wat2wasm, _WHOLE), _bytes),
    "parses and writes JSON of 1 KiB with serde_json": _Module(serde_module, _json),
}


def _cases(_: Scale) -> list[Case]:
    return [
        Case(workload="wasm", name=name, measure=partial(_measure, module=module)) for name, module in _MODULES.items()
    ]


WORKLOAD: Final = Workload(
    name="wasm",
    title="Wasm transforms",
    question=(
        f"How many records of 1 KiB does a module transform on one core, in batches of {_RECORDS:,}, with everything that "
        "happens to a batch in a worker's thread?"
    ),
    cases=_cases,
)


def _measure(_: Broker, __: Scale, *, module: _Module) -> dict[str, float]:
    settings = WasmSettings()
    compiler = Compiler(settings)
    program = compiler.compile("bench", bytes(module.code()))
    run = partial(Sandbox(compiler, settings).run, program)
    records = [NewRecord(value=value) for value in module.values()]
    batch = bytes(build_batch(records, now_ms=1, codec=module.codec))
    epochs = Epochs(compiler.engine)
    with epochs.ticking():
        if (count := read_header(transform(batch, run, keys_needed=False)).record_count) != _RECORDS:
            raise LoadFailed(f"the module made {count} records of {_RECORDS}")
        batches, began = 0, time.thread_time()
        while (spent := time.thread_time() - began) < _SECONDS:
            transform(batch, run, keys_needed=False)
            batches += 1
    epochs.close()
    return {"record_rate": batches * _RECORDS / spent, "record_cpu": spent * 1e6 / (batches * _RECORDS)}
