"""What a module is given, what becomes of what it gives back, and what it cannot do. No node, no loop."""

from collections.abc import Callable, Iterator

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st
from tests.support import wasm

from headrace.errors import Invalid, InvalidRecords, TransformFailed
from headrace.records.batch import Codec, check_batch, has_valid_crc, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_batch_records
from headrace.transforms.batches import transform, without_records
from headrace.transforms.programs import Compiler
from headrace.transforms.sandbox import LINE_BYTES_MAX, LINES_MAX, Epochs, Sandbox
from headrace.transforms.settings import WasmSettings

SETTINGS = WasmSettings(timeout_ms=50, memory_bytes_max=4 << 20)
THREE = [
    NewRecord(key=b"k1", value=b"one"),
    NewRecord(value=b"xtwo"),
    NewRecord(key=b"k3", value=b"three", headers=(("h", b"v"),)),
]


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(SETTINGS)


@pytest.fixture(scope="module")
def sandbox(compiler: Compiler) -> Iterator[Sandbox]:
    epochs = Epochs(compiler.engine)
    with epochs.ticking():
        yield Sandbox(compiler, SETTINGS)
    epochs.close()


@pytest.fixture(scope="module")
def through(compiler: Compiler, sandbox: Sandbox) -> Callable[..., bytes]:
    def run(code: bytes, batch: bytes | bytearray, *, keys_needed: bool = False) -> bytes:
        program = compiler.compile("m_v1", code)
        made = transform(bytes(batch), lambda payload: sandbox.run(program, payload), keys_needed=keys_needed)
        assert has_valid_crc(made)
        return made

    return run


def values_of(batch: bytes) -> list[bytes | None]:
    return [each.value for each in read_batch_records(batch)]


@pytest.mark.requirement("R3.78", "X3.3")
def test_each_value_is_given_and_what_comes_back_takes_its_place(through: Callable[..., bytes]) -> None:
    made = through(wasm.UPPER, build_batch(THREE, now_ms=7))
    assert list(read_batch_records(made)) == [
        Record(0, 7, b"k1", b"ONE"),
        Record(1, 7, None, b"XTWO"),
        Record(2, 7, b"k3", b"THREE", (("h", b"v"),)),
    ]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_keeps_its_codec_producer_and_span(through: Callable[..., bytes], codec: Codec) -> None:
    batch = build_batch(
        THREE, now_ms=7, codec=codec, producer_id=9, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    before, after = read_header(batch), read_header(through(wasm.DROP_X, batch))
    assert after.record_count == 2
    kept = ("attributes", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "base_timestamp_ms")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert [each.offset for each in read_batch_records(through(wasm.DROP_X, batch))] == [0, 2]


def test_a_batch_of_which_nothing_is_left_still_takes_its_offsets(through: Callable[..., bytes]) -> None:
    batch = build_batch(
        [NewRecord(value=b"x")] * 4, now_ms=7, codec=Codec.ZSTD, producer_id=9, producer_epoch=0, base_sequence=3
    )
    made = through(wasm.DROP_X, batch)
    assert made == without_records(batch)
    header = read_header(made)
    assert (header.record_count, header.last_offset_delta, header.codec, header.producer_id) == (0, 3, Codec.NONE, 9)
    assert header.max_timestamp_ms == -1


def test_a_record_without_a_value_is_kept_as_it_is(through: Callable[..., bytes]) -> None:
    batch = build_batch([NewRecord(key=b"k", value=None), NewRecord(value=b""), NewRecord(value=b"abcdef")], now_ms=7)
    assert values_of(through(wasm.CUT, batch)) == [None, b"", b"abcd"]
    assert values_of(through(wasm.DROP_EMPTY, batch)) == [None, b"abcdef"]


def test_a_batch_module_may_change_times(through: Callable[..., bytes]) -> None:
    batch = build_batch([NewRecord(value=b"a", timestamp_ms=5000), NewRecord(value=b"b", timestamp_ms=9000)], now_ms=7)
    made = through(wasm.LATER, batch)
    assert [each.timestamp_ms for each in read_batch_records(made)] == [6000, 10000]
    assert read_header(made).max_timestamp_ms == 10000


RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=3000),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=30,
)


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_what_changes_nothing_changes_nothing(
    compiler: Compiler, sandbox: Sandbox, records: list[NewRecord], codec: Codec
) -> None:
    batch = bytes(build_batch(records, now_ms=7, codec=codec))
    for code in (wasm.IDENTITY, wasm.BATCH_IDENTITY):
        program = compiler.compile("same_v1", code)
        made = transform(batch, lambda payload, p=program: sandbox.run(p, payload), keys_needed=False)  # type: ignore[misc]
        assert list(read_batch_records(made)) == list(read_batch_records(batch))
        check_batch(made, size_max=2**31)


@given(records=RECORDS)
def test_what_is_dropped_and_cut_is_what_python_would_have(
    compiler: Compiler, sandbox: Sandbox, records: list[NewRecord]
) -> None:
    batch = bytes(build_batch(records, now_ms=7))
    for code, expected in (
        (wasm.CUT, [None if each.value is None else each.value[:4] for each in records]),
        (wasm.DROP_EMPTY, [each.value for each in records if each.value != b""]),
    ):
        program = compiler.compile("m_v1", code)
        made = transform(batch, lambda payload, p=program: sandbox.run(p, payload), keys_needed=False)  # type: ignore[misc]
        assert values_of(made) == expected


@pytest.mark.requirement("R3.80")
@pytest.mark.parametrize("name", [name for name, (_, words) in wasm.HOSTILE.items() if words])
def test_a_hostile_module_is_stopped_and_says_why(through: Callable[..., bytes], name: str) -> None:
    code, words = wasm.HOSTILE[name]
    with pytest.raises(TransformFailed, match=words):
        through(code, build_batch(THREE, now_ms=7))
    # The next batch, of a module that behaves, notices nothing.
    assert values_of(through(wasm.CUT, build_batch(THREE, now_ms=7))) == [b"one", b"xtwo", b"thre"]


def test_what_still_runs_when_time_is_closed_is_stopped_all_the_same(compiler: Compiler) -> None:
    """A node that stops waits for its workers: an endless module must not keep it."""
    epochs, sandbox = Epochs(compiler.engine), Sandbox(compiler, SETTINGS)
    program = compiler.compile("m_v1", wasm.ENDLESS)
    with epochs.ticking():
        epochs.close()
        with pytest.raises(TransformFailed, match="for more than 50 ms"):
            transform(bytes(build_batch(THREE, now_ms=7)), lambda p: sandbox.run(program, p), keys_needed=False)


def test_the_record_at_fault_is_named(through: Callable[..., bytes]) -> None:
    with pytest.raises(TransformFailed, match=r"record 1 of the batch: trapped: .*unreachable") as refused:
        through(wasm.TRAP_ON_X, build_batch(THREE, now_ms=7))
    assert [index for index, _ in refused.value.failures] == [1]


@pytest.mark.parametrize("at", range(1, 40))
def test_running_out_of_fuel_at_any_step_refuses_the_batch(compiler: Compiler, at: int) -> None:
    """A trap at every step: with so little fuel the module ends somewhere in its work, later each time."""
    sandbox = Sandbox(compiler, WasmSettings(fuel_max=at * 11, timeout_ms=10_000))
    program = compiler.compile("m_v1", wasm.UPPER)
    batch = bytes(build_batch(THREE, now_ms=7))
    with pytest.raises(TransformFailed, match="instructions on a batch"):
        transform(batch, lambda payload: sandbox.run(program, payload), keys_needed=False)


def test_a_module_remembers_nothing_between_batches(compiler: Compiler, sandbox: Sandbox) -> None:
    counts = wasm.module(
        """(global $seen (mut i32) (i32.const 0))
           (func (export "process_message") (param $at i32) (param $size i32) (result i32)
             (global.set $seen (i32.add (global.get $seen) (i32.const 1)))
             (i32.store8 (local.get $at) (i32.add (global.get $seen) (i32.const 48)))
             (call $answer (local.get $at) (i32.const 1)))"""
    )
    program = compiler.compile("m_v1", counts)
    batch = bytes(build_batch(THREE, now_ms=7))
    for _ in range(3):
        made = transform(batch, lambda payload: sandbox.run(program, payload), keys_needed=False)
        assert values_of(made) == [b"1", b"2", b"3"]


def test_records_that_do_not_parse_never_reach_a_module(through: Callable[..., bytes]) -> None:
    batch = bytearray(build_batch(THREE, now_ms=7))
    batch[61] = 2  # The first record says that it is one byte long.
    with pytest.raises(InvalidRecords, match="do not parse") as refused:
        through(wasm.ENDLESS, batch)
    assert not isinstance(refused.value, TransformFailed)


def test_a_compacted_topic_takes_no_record_that_lost_its_key(through: Callable[..., bytes]) -> None:
    through(wasm.IDENTITY, build_batch(THREE[:1], now_ms=7), keys_needed=True)
    with pytest.raises(TransformFailed, match="without a key"):
        through(wasm.IDENTITY, build_batch(THREE, now_ms=7), keys_needed=True)


def test_lines_are_kept_up_to_a_bound(compiler: Compiler, sandbox: Sandbox) -> None:
    batch = bytes(build_batch(THREE, now_ms=7))
    program = compiler.compile("m_v1", wasm.LOGS_SIZE)
    transform(batch, lambda payload: sandbox.run(program, payload), keys_needed=False)
    assert sandbox.lines == ["hello"] * 3
    program = compiler.compile("m_v1", wasm.HOSTILE["logs for ever"][0])
    with pytest.raises(TransformFailed):
        transform(batch, lambda payload: sandbox.run(program, payload), keys_needed=False)
    assert len(sandbox.lines) == LINES_MAX
    assert max(map(len, sandbox.lines)) <= LINE_BYTES_MAX


@pytest.mark.requirement("R3.80")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (b"", "not WebAssembly"),
        (b"#!/bin/sh", "not WebAssembly"),
        (b"\0asm\x0d\0\1\0", "no core module"),
        (b"\0asm\1\0\0\0\xff\xff", "does not compile"),
        (wasm.IDENTITY[:-5], "does not compile"),
        (wasmtime.wat2wasm("(module)"), "exports no memory"),
        (wasmtime.wat2wasm('(module (memory (export "memory") 1))'), "'alloc' or 'allocate'"),
        (wasmtime.wat2wasm('(module (memory (export "memory") 1000))'), "wasm.memory.bytes.max"),
        (wasm.module(""), "'process_batch' or 'process_message'"),
        (wasm.module('(func (export "process_message") (param i32) (result i32) (i32.const 0))'), r"not a function \(i32, i32\) -> i32"),
        (wasm.module('(func (export "process_batch") (param i32 i32) (result i64) (i64.const 0))'), "not a function"),
        (wasm.per_message(wasm.SAME, imports='(import "env" "open" (func (param i32)))'), "imports env.open"),
        (
            wasm.per_message(
                wasm.SAME,
                imports='(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))',
            ),
            "wasm32-unknown-unknown",
        ),
        (wasm.per_message(wasm.SAME, imports='(import "headrace" "log" (func (param i64)))'), "another shape"),
        (wasm.module('(start $s) (func $s (unreachable)) (func (export "process_batch") (param i32 i32) (result i32) (i32.const 0))'), "before it was given anything"),
        (wasm.module('(start $s) (func $s (loop $e (br $e))) (func (export "process_batch") (param i32 i32) (result i32) (i32.const 0))'), "before it was given anything"),
        (wasmtime.wat2wasm('(module (import "headrace" "log" (memory 1)))'), "another shape"),
        (b"\0asm\1\0\0\0" + bytes(5 << 20), "the most is"),
    ],
)  # fmt: skip
def test_what_is_no_transform_is_refused_with_the_reason(
    compiler: Compiler, sandbox: Sandbox, code: bytes, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        sandbox.try_out(compiler.compile("m_v1", bytes(code)))


def test_both_spellings_of_the_allocator_are_known(compiler: Compiler, sandbox: Sandbox) -> None:
    text = f"""(module (memory (export "memory") 2) {wasm.ALLOC.replace('"alloc"', '"allocate"')} {wasm.ANSWER}
        (func (export "deallocate") (param i32 i32))
        (func (export "process_message") (param $at i32) (param $size i32) (result i32) {wasm.SAME}))"""
    program = compiler.compile("m_v1", bytes(wasmtime.wat2wasm(text)))
    batch = bytes(build_batch(THREE, now_ms=7))
    made = transform(batch, lambda payload: sandbox.run(program, payload), keys_needed=False)
    assert values_of(made) == [b"one", b"xtwo", b"three"]
