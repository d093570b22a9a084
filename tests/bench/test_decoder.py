"""How many records per second of CPU the decoder turns into Arrow. The long one writes docs/benchmarks/decoder.md.

pytest tests/bench/test_decoder.py -m long -s
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from headrace.pipeline.decoder import Columns, Inflated, compiled, decode, vector
from headrace.pipeline.decoder.arrow import Kernel
from headrace.records.batch import HEADER_SIZE, Codec, read_header, stamp
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "benchmarks" / "decoder.md"
COLUMNS = Columns(["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"])
MIB = 1024 * 1024
ROUNDS = 3
SHAPES = ((1024, 16), (1024, 128), (1024, 1000), (100, 160), (100, 1300), (100, 10_000))
BARS = {("C", 1024): 2.5e6, ("C", 100): 10e6, ("numpy", 1024): 1e6, ("numpy", 100): 1e6}
"""Records per second, uncompressed, from 128 KiB batches on."""
LOOKS_MAX = 20
LZ4_FACTOR_MAX = 3
"""How much more than lz4 alone its undoing may cost here."""

INTRODUCTION = """\
# Decoder rates

Written by `pytest tests/bench/test_decoder.py -m long`. Records per second of CPU on one core: all columns but headers,
CRC verified, JSON-like values that compress about two to one. The bars are for uncompressed records in batches of
some 128 KiB and more: 2.5 M/s of 1 KiB and 10 M/s of 100 B with the C kernel, 1 M/s with its numpy twin. A batch costs
about two microseconds of Python, which shows in those of 16 KiB; for the rest the codecs' own speed decides.

| record | records per batch | codec | C, M/s | numpy, M/s |
|---|---:|---|---:|---:|
"""


def make_value(size: int, source: random.Random) -> bytes:
    head = json.dumps({"id": source.randrange(10**9), "user": f"user-{source.randrange(10**4)}", "state": "active"})
    half = max(0, size - len(head)) // 2
    return (head.encode() + source.randbytes(half) + b" " * size)[:size]


def make_batch(size: int, count: int, codec: int) -> bytearray:
    source = random.Random(size * count)
    records = [
        NewRecord(key=b"k%07d" % index, value=make_value(size, source), timestamp_ms=index) for index in range(count)
    ]
    return build_batch(records, now_ms=0, codec=codec)


def repeat_batch(batch: bytearray, size: int, bytes_total: int) -> tuple[bytes, int]:
    """As many of it as make `bytes_total` of values, with offsets of their own; and how many records that are."""
    header = read_header(batch)
    parts = []
    for index in range(max(1, bytes_total // (header.record_count * size))):
        stamp(batch, index * header.record_count, 1)
        parts.append(bytes(batch))
    return b"".join(parts), len(parts) * header.record_count


def cost_of(data: bytes, count: int, kernel: Kernel) -> float:
    """CPU seconds per record, the best of a few rounds."""
    inflated = Inflated()

    def work() -> None:
        batches = decode(data, topic="orders", partition=0, columns=COLUMNS, kernel=kernel, inflated=inflated)
        assert sum(batch.num_rows for batch in batches) == count

    return best_seconds(work) / count


def best_seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def cost_of_lz4_alone(count: int) -> float:
    """CPU seconds per record of 1 KiB to undo lz4 and nothing else."""
    payload = bytes(make_batch(1024, count, Codec.NONE)[HEADER_SIZE:])
    block = bytes(cramjam.lz4.compress_block(payload, store_size=False))
    output = bytearray(len(payload))

    def work() -> None:
        for _ in range(50):
            cramjam.lz4.decompress_block_into(block, output)

    return best_seconds(work) / (50 * count)


def test_lz4_costs_little_more_than_lz4() -> None:
    plain, packed = (repeat_batch(make_batch(1024, 1000, codec), 1024, 16 * MIB) for codec in (Codec.NONE, Codec.LZ4))
    none = lz4 = alone = float("inf")
    # The least of many looks: neighbours in the caches make work dearer, never cheaper.
    for _ in range(LOOKS_MAX):
        none = min(none, cost_of(*plain, compiled.decode))
        lz4 = min(lz4, cost_of(*packed, compiled.decode))
        alone = min(alone, cost_of_lz4_alone(1000))
        if lz4 <= none + LZ4_FACTOR_MAX * alone:
            return
    raise AssertionError(
        f"{lz4 * 1e9:.0f} ns a record, {none * 1e9:.0f} without lz4, which alone takes {alone * 1e9:.0f}"
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rates_clear_their_bars() -> None:
    lines, missed = [], []
    for size, per_batch in SHAPES:
        for codec in Codec:
            data, count = repeat_batch(make_batch(size, per_batch, codec), size, 32 * MIB)
            rates = {
                name: 1 / cost_of(data, count, kernel)
                for name, kernel in (("C", compiled.decode), ("numpy", vector.decode))
            }
            figures = " | ".join(f"{rate / 1e6:.2f}" for rate in rates.values())
            lines.append(f"| {size} B | {per_batch:,} | {codec.name.lower()} | {figures} |")
            print(lines[-1])
            if codec is Codec.NONE and size * per_batch >= 128 * 1000:
                missed += [(name, size, rate) for name, rate in rates.items() if rate < BARS[name, size]]
    PAGE.write_text(f"{INTRODUCTION}{chr(10).join(lines)}\n\n{os.cpu_count()} cores, {processor()}.\n")
    assert not missed


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip()
