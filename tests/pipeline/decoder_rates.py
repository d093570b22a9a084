"""How fast the decoder is, per core: `python -m tests.pipeline.decoder_rates`. CPU time, so that neighbours do not matter."""

import os
import time
from collections.abc import Callable

from headrace.pipeline.decoder import Columns, compiled, decode, vector
from headrace.pipeline.decoder.arrow import Kernel
from headrace.records.batch import Codec, read_header, stamp
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

COLUMNS = Columns(["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"])
BYTES_TOTAL = 64 * 1024 * 1024
ROUNDS = 3


def make_batches(size: int, batch_records: int, codec: int) -> tuple[bytes, int]:
    """Half random, half alike: compresses about two to one."""
    values = [os.urandom(size // 2) + b"a" * (size - size // 2) for _ in range(batch_records)]
    records = [NewRecord(key=b"k%07d" % i, value=value, timestamp_ms=i) for i, value in enumerate(values)]
    batch = build_batch(records, now_ms=0, codec=codec)
    parts = []
    for index in range(max(1, BYTES_TOTAL // (size * batch_records))):
        stamp(batch, index * batch_records, 1)
        parts.append(bytes(batch))
    assert read_header(parts[-1]).record_count == batch_records
    return b"".join(parts), len(parts) * batch_records


def rate(data: bytes, count: int, kernel: Kernel) -> float:
    """Records per second of CPU, the best of a few rounds."""
    return count / min(_seconds(lambda: _decode_all(data, count, kernel)) for _ in range(ROUNDS))


def _decode_all(data: bytes, count: int, kernel: Kernel) -> None:
    rows = sum(b.num_rows for b in decode(data, topic="orders", partition=0, columns=COLUMNS, kernel=kernel))
    assert rows == count


def _seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    print("| record | records per batch | codec | C, M/s | numpy, M/s |\n|---|---|---|---|---|")
    for size, batch_records in ((1024, 16), (1024, 128), (1024, 1000), (100, 160), (100, 1300), (100, 10_000)):
        for codec in Codec:
            data, count = make_batches(size, batch_records, codec)
            rates = [rate(data, count, kernel) / 1e6 for kernel in (compiled.decode, vector.decode)]
            print(f"| {size} B | {batch_records} | {codec.name.lower()} | {rates[0]:.2f} | {rates[1]:.2f} |")


if __name__ == "__main__":
    main()
