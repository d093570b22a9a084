"""Both kernels agree with the oracle on every input: well-formed, mutilated and random."""

from array import array
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.decoding_oracle import OracleRow, decode_slowly

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder import compiled, vector
from headrace.pipeline.decoder.arrow import Kernel
from headrace.pipeline.decoder.sections import Sections
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

KERNELS = pytest.mark.parametrize("kernel", [compiled.decode, vector.decode], ids=["compiled", "vector"])
EVERYTHING = frozenset({"key", "value", "offset", "timestamp", "timestampType", "headers"})
WITHOUT_HEADERS = EVERYTHING - {"headers"}


class Window(TypedDict):
    first: int
    end: int
    with_headers: bool


fields = st.one_of(st.none(), st.binary(max_size=300))
names = st.text(max_size=10)
times = st.integers(-(2**62), 2**62 - 1)
records = st.builds(
    NewRecord,
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(names, fields), max_size=4).map(tuple),
    timestamp_ms=times,
)
batches = st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=5)


def sections_of(groups: list[list[NewRecord]], *, base: int = 0) -> Sections:
    sections = Sections()
    for group in groups:
        batch = build_batch(group, now_ms=0)
        header = read_header(batch)._replace(base_offset=base)
        sections.add(memoryview(batch), HEADER_SIZE, len(batch), header, memoryview(batch))
        base += len(group) + 3  # a gap, as compaction leaves them
    return sections


def rows_of(arrays: dict[str, pa.Array]) -> list[OracleRow]:
    count = len(arrays["offset"])
    for array_ in arrays.values():
        array_.validate(full=True)
        assert len(array_) == count
    headers = arrays["headers"].to_pylist() if "headers" in arrays else [None] * count
    return [
        OracleRow(offset, time, kind, key, value, None if pairs is None else [(h["key"], h["value"]) for h in pairs])
        for offset, time, kind, key, value, pairs in zip(
            arrays["offset"].to_pylist(),
            arrays["timestamp"].view(pa.int64()).to_pylist(),
            arrays["timestampType"].to_pylist(),
            arrays["key"].to_pylist(),
            arrays["value"].to_pylist(),
            headers,
            strict=True,
        )
    ]


def outcome(decode: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return decode(*args, **kwargs)
    except CorruptBatch:
        return CorruptBatch


def expected(sections: Sections, *, first: int, end: int, with_headers: bool) -> Any:
    rows = outcome(decode_slowly, sections, first=first, end=end, with_headers=with_headers)
    if rows is CorruptBatch:
        return rows
    return [
        replace(row, headers=row.headers and [(k.decode(errors="replace"), v) for k, v in row.headers]) for row in rows
    ]


def found(kernel: Kernel, sections: Sections, *, first: int, end: int, with_headers: bool) -> Any:
    columns = EVERYTHING if with_headers else WITHOUT_HEADERS
    arrays = outcome(kernel, sections, first=first, end=end, columns=columns)
    return arrays if arrays is CorruptBatch else rows_of(arrays)


@KERNELS
@settings(deadline=None)
@given(groups=batches, window=st.tuples(st.integers(0, 60), st.integers(0, 60)), with_headers=st.booleans())
def test_records_come_out_as_they_went_in(
    kernel: Kernel, groups: list[list[NewRecord]], window: tuple[int, int], with_headers: bool
) -> None:
    sections = sections_of(groups, base=10)
    bounds: Window = {"first": min(window), "end": max(window), "with_headers": with_headers}
    assert found(kernel, sections, **bounds) == expected(sections, **bounds)


@KERNELS
@settings(deadline=None, max_examples=400)
@given(groups=batches, data=st.data(), with_headers=st.booleans())
def test_mutilated_payloads_are_judged_alike(
    kernel: Kernel, groups: list[list[NewRecord]], data: st.DataObject, with_headers: bool
) -> None:
    sections = sections_of(groups)
    which = data.draw(st.integers(0, len(groups) - 1))
    payload = bytearray(sections.buffers[which])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_SIZE, len(payload) - 1))
        payload[position] = data.draw(st.integers(0, 255))
    sections.buffers[which] = memoryview(payload)
    bounds: Window = {"first": 0, "end": 100, "with_headers": with_headers}
    assert found(kernel, sections, **bounds) == expected(sections, **bounds)


@KERNELS
@settings(deadline=None, max_examples=400)
@given(
    payload=st.binary(max_size=200),
    count=st.integers(0, 5),
    last_delta=st.integers(0, 8),
    is_append=st.booleans(),
    with_headers=st.booleans(),
)
def test_random_bytes_are_judged_alike(
    kernel: Kernel, payload: bytes, count: int, last_delta: int, is_append: bool, with_headers: bool
) -> None:
    sections = Sections([payload], array("q", [0, 0, len(payload), count, 5, last_delta, 1, 2, is_append]), count)
    sections.bytes_total = len(payload)
    bounds: Window = {"first": 0, "end": 100, "with_headers": with_headers}
    assert found(kernel, sections, **bounds) == expected(sections, **bounds)


@KERNELS
def test_a_payload_cut_at_every_length_is_corrupt(kernel: Kernel) -> None:
    group = [
        NewRecord(key=b"k" * 70, value=b"v" * 200, headers=(("h", b"1"), ("i", None)), timestamp_ms=i) for i in range(3)
    ]
    whole = sections_of([group])
    size = whole.table[2]
    for cut in range(HEADER_SIZE, size):
        sections = Sections(whole.buffers, array("q", whole.table), whole.record_count, whole.bytes_total)
        sections.table[2] = cut
        with pytest.raises(CorruptBatch):
            kernel(sections, first=0, end=100, columns=EVERYTHING)


@KERNELS
def test_header_names_that_are_not_text_are_replaced_not_refused(kernel: Kernel) -> None:
    batch = bytearray(build_batch([NewRecord(value=b"x", headers=(("ab", b"1"),))], now_ms=0))
    at = batch.index(b"ab")
    batch[at] = 0xFF
    sections = Sections()
    sections.add(memoryview(batch), HEADER_SIZE, len(batch), read_header(batch), memoryview(batch))
    arrays = kernel(sections, first=0, end=1, columns=EVERYTHING)
    assert arrays["headers"].to_pylist() == [[{"key": "\ufffdb", "value": b"1"}]]


@KERNELS
def test_times_beyond_microseconds_are_held_at_the_limit(kernel: Kernel) -> None:
    sections = sections_of([[NewRecord(value=b"", timestamp_ms=2**62)]])
    arrays = kernel(sections, first=0, end=1, columns=EVERYTHING)
    assert arrays["timestamp"].view(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_the_compiled_kernel_refuses_sections_outside_their_buffer() -> None:
    sections = Sections([b"abc"], array("q", [0, 0, 4, 1, 0, 0, 0, 0, 0]), 1, 4)
    with pytest.raises(CorruptBatch, match="outside its buffer"):
        compiled.decode(sections, first=0, end=1, columns=EVERYTHING)
