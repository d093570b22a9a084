"""Wasm modules for tests, from text; and hostile ones, each with the words that its refusal must have."""

from typing import Final

import wasmtime

ALLOC: Final = """
  (global $next (mut i32) (i32.const 1024))
  (func $alloc (export "alloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $next))
    (global.set $next (i32.and (i32.add (i32.add (global.get $next) (local.get $size)) (i32.const 7)) (i32.const -8)))
    (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
      (then
        (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))) (i32.const -1))
          (then (unreachable)))))
    (local.get $at))
"""
"""An allocator that never frees: enough for one batch."""

ANSWER: Final = """
  (func $answer (param $at i32) (param $size i32) (result i32)
    (i32.store (i32.const 8) (local.get $at))
    (i32.store (i32.const 12) (local.get $size))
    (i32.const 8))
"""


def module(body: str, *, memory: str = '(memory (export "memory") 2)', imports: str = "") -> bytes:
    """A module with an allocator, `$answer` and what `body` says."""
    return bytes(wasmtime.wat2wasm(f"(module {imports} {memory} {ALLOC} {ANSWER} {body})"))


def per_message(body: str, *, imports: str = "") -> bytes:
    """`body` is what `process_message` does with `$at` and `$size`; it has locals `$i` and `$j`."""
    return module(
        f'(func (export "process_message") (param $at i32) (param $size i32) (result i32) (local $i i32) (local $j i32) {body})',
        imports=imports,
    )


def per_batch(body: str, *, imports: str = "") -> bytes:
    return module(
        f'(func (export "process_batch") (param $at i32) (param $size i32) (result i32) (local $i i32) (local $j i32) {body})',
        imports=imports,
    )


SAME: Final = "(call $answer (local.get $at) (local.get $size))"
IDENTITY: Final = per_message(SAME)
BATCH_IDENTITY: Final = per_batch(SAME)
CUT: Final = per_message(
    "(call $answer (local.get $at) (select (local.get $size) (i32.const 4) (i32.lt_u (local.get $size) (i32.const 4))))"
)
"""The first four bytes of each value."""
DROP_EMPTY: Final = per_message(f"(if (result i32) (local.get $size) (then {SAME}) (else (i32.const 0)))")
"""Records with an empty value go."""
DROP_X: Final = per_message(
    f"""(if (result i32) (i32.and (i32.ne (local.get $size) (i32.const 0)) (i32.eq (i32.load8_u (local.get $at)) (i32.const 120)))
        (then (i32.const 0)) (else {SAME}))"""
)
"""Records whose value begins with x go."""
UPPER: Final = per_message(
    f"""(block $done (loop $each
        (br_if $done (i32.ge_u (local.get $i) (local.get $size)))
        (local.set $j (i32.load8_u (i32.add (local.get $at) (local.get $i))))
        (if (i32.and (i32.ge_u (local.get $j) (i32.const 97)) (i32.le_u (local.get $j) (i32.const 122)))
          (then (i32.store8 (i32.add (local.get $at) (local.get $i)) (i32.sub (local.get $j) (i32.const 32)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $each)))
      {SAME}"""
)
TRAP_ON_X: Final = per_message(
    f"""(if (i32.and (i32.ne (local.get $size) (i32.const 0)) (i32.eq (i32.load8_u (local.get $at)) (i32.const 120)))
        (then (unreachable))) {SAME}"""
)
LATER: Final = per_batch(
    f"""(i64.store offset=8 (local.get $at) (i64.add (i64.load offset=8 (local.get $at)) (i64.const 1000))) {SAME}"""
)
"""Every record a second later."""
LOGS_SIZE: Final = per_message(
    f"""(i32.store (i32.const 16) (i32.const 0x6c6c6568)) (i32.store8 (i32.const 20) (i32.const 111))
        (call $log (i32.const 16) (i32.const 5)) {SAME}""",
    imports='(import "headrace" "log" (func $log (param i32 i32)))',
)
LARGE_VALUE: Final = 131072
"""As large as the module's memory is at first."""
ENDLESS: Final = per_message("(loop $ever (br $ever)) (i32.const 0)")

HOSTILE: Final[dict[str, tuple[bytes, str]]] = {
    "endless loop": (ENDLESS, "was stopped: it"),
    "endless loop over a batch": (per_batch("(loop $ever (br $ever)) (i32.const 0)"), "was stopped: it"),
    "grows": (
        per_message(
            f"(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (unreachable) {SAME}"
        ),
        "unreachable",
    ),
    "deep recursion": (
        module(
            """(func $deep (param i64 i64 i64 i64) (result i64)
                 (i64.add (local.get 0)
                   (call $deep (local.get 3) (local.get 0) (local.get 1) (i64.add (local.get 2) (i64.const 1)))))
               (func (export "process_message") (param i32 i32) (result i32)
                 (i32.wrap_i64 (call $deep (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4))))"""
        ),
        "call stack exhausted",
    ),
    "answer points nowhere": (per_message("(i32.const 0x7ffffff0)"), "out of bounds"),
    "batch answer points nowhere": (per_batch("(i32.const -8)"), "pointer to nowhere"),
    "value points nowhere": (per_message("(call $answer (i32.const 0x70000000) (i32.const 8))"), "out of bounds"),
    "value is huge": (per_message("(call $answer (local.get $at) (i32.const 0x7fffffff))"), "no memory is left"),
    "value is as large as memory": (
        per_message(f"(call $answer (i32.const 0) (i32.const {LARGE_VALUE}))"),
        "",  # Sound, as long as it fits the topic.
    ),
    "batch is huge": (per_batch("(call $answer (local.get $at) (i32.const 0x7fffffff))"), "answered with"),
    "batch is shorter than its head": (per_batch("(call $answer (local.get $at) (i32.const 15))"), "answered with"),
    "count lies upwards": (
        per_batch(f"(i32.store (local.get $at) (i32.const 1000000)) {SAME}"),
        "gave 1000000 records",
    ),
    "count lies downwards": (per_batch(f"(i32.store (local.get $at) (i32.const 1)) {SAME}"), "not 1 records"),
    "records are cut": (
        per_batch("(call $answer (local.get $at) (i32.sub (local.get $size) (i32.const 1)))"),
        "not 3 records",
    ),
    "records are garbage": (
        per_batch(f"(memory.fill (i32.add (local.get $at) (i32.const 16)) (i32.const 255) (i32.const 8)) {SAME}"),
        "not 3 records",
    ),
    "time is absurd": (
        per_batch(f"(i64.store offset=8 (local.get $at) (i64.const -9000000000000000000)) {SAME}"),
        "of the time",
    ),
    "alloc gives nothing": (
        bytes(
            wasmtime.wat2wasm(
                """(module (memory (export "memory") 1)
                     (func (export "alloc") (param i32) (result i32) (i32.const 0))
                     (func (export "process_message") (param i32 i32) (result i32) (i32.const 0)))"""
            )
        ),
        "alloc gave no memory",
    ),
    "alloc lies": (
        bytes(
            wasmtime.wat2wasm(
                """(module (memory (export "memory") 1)
                     (func (export "alloc") (param i32) (result i32) (i32.const -16))
                     (func (export "process_batch") (param i32 i32) (result i32) (i32.const 0)))"""
            )
        ),
        "no memory for",
    ),
    "alloc traps": (
        bytes(
            wasmtime.wat2wasm(
                """(module (memory (export "memory") 1)
                     (func (export "alloc") (param i32) (result i32) (unreachable))
                     (func (export "process_message") (param i32 i32) (result i32) (i32.const 0)))"""
            )
        ),
        "unreachable",
    ),
    "dealloc traps": (
        bytes(
            wasmtime.wat2wasm(
                f"""(module (memory (export "memory") 2) {ALLOC} {ANSWER}
                     (func (export "dealloc") (param i32 i32) (unreachable))
                     (func (export "process_message") (param $at i32) (param $size i32) (result i32) {SAME}))"""
            )
        ),
        "unreachable",
    ),
    "divides by zero": (per_message("(i32.div_u (i32.const 1) (i32.const 0))"), "divide by zero"),
    "traps": (per_message("(unreachable)"), "unreachable"),
    "logs for ever": (
        per_message(
            "(loop $ever (call $log (i32.const 0) (i32.const 100000)) (br $ever)) (i32.const 0)",
            imports='(import "headrace" "log" (func $log (param i32 i32)))',
        ),
        "logged more than",
    ),
}
"""By what they do: the module, and the words of its refusal. Each is given three records."""
