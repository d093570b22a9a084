"""Strangers' bytes in the C kernels: whatever they are, a kernel declines them, or does what its twin would have done.

Each test does the same rounds every time, so that whoever changes something else is not stopped by chance. With
HEADRACE_FUZZ_SECONDS it goes on for so long from a seed of its own, or from HEADRACE_FUZZ_SEED: `make fuzz-kernels` gives each
a minute, on kernels that were built with the address and undefined behaviour sanitizers.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from tests.support.kafka_door import opened_door
from tests.support.logs import NOW_MS, batch_of, opened

from headrace.compiled import compiled
from headrace.errors import CorruptBatch, Corrupted
from headrace.log.common_append import append_common
from headrace.pipeline.decoder import vector
from headrace.pipeline.decoder.sections import Sections
from headrace.records import stretch, walk
from headrace.records.batch import HEADER_SIZE, check_batch, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.records.walk import check_records
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

SECONDS = float(os.environ.get("HEADRACE_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "0")) or (random.randrange(1 << 32) if SECONDS else 1)
ROUNDS_MIN = 300
EDGES = (b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), b"\x80" * 9)

pytestmark = pytest.mark.skipif(compiled("headrace.log._append") is None, reason="the kernels are not built")


def while_there_is_time() -> Iterator[random.Random]:
    """One source of chance after the other; the seed in a failure's report replays the round."""
    end = time.monotonic() + SECONDS
    nth = 0
    while nth < ROUNDS_MIN or time.monotonic() < end:
        yield random.Random(f"{SEED} {nth}")
        nth += 1


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """`whole` with a few edits, most of them where lengths and counts stand: near the front."""
    changed = bytearray(whole)
    for _ in range(chance.randint(0, 4)):
        place = chance.randrange(len(changed) + 1) if chance.random() < 0.5 else min(chance.randrange(90), len(changed))
        match chance.randrange(5):
            case 0:
                edge = chance.choice(EDGES)
                changed[place : place + len(edge)] = edge
            case 1:
                changed[place:place] = chance.choice(EDGES)
            case 2:
                del changed[place : place + chance.randint(1, 8)]
            case 3:
                changed[place : place + 1] = chance.randbytes(1)
            case _:
                del changed[place:]
    return bytes(changed)


def some_batch(chance: random.Random) -> bytes:
    headers = (("h", b"1"), ("i", None)) if chance.random() < 0.3 else ()
    records = [
        NewRecord(key=chance.choice((None, b"", b"key")), value=chance.randbytes(chance.randrange(60)), headers=headers)
        for _ in range(chance.randint(1, 5))
    ]
    return bytes(build_batch(records, now_ms=NOW_MS))


def recounted(batch: bytes) -> bytes:
    """With a CRC that is right, and mostly a length: a stranger can count, too."""
    fixed = bytearray(batch)
    if len(fixed) >= HEADER_SIZE:
        fixed[8:12] = (len(fixed) - 12).to_bytes(4, "big")
        fixed[17:21] = int(crc32c(bytes(fixed[21:]))).to_bytes(4, "big")
    return bytes(fixed)


async def test_what_the_append_takes_is_a_batch(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_capacity_bytes=8 << 20) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"first"))
        taken = 0
        for chance in while_there_is_time():
            batch = damaged(some_batch(chance), chance)
            if chance.random() < 0.8:
                batch = recounted(batch)
            base = append_common(partition, batch, NOW_MS, None)
            if base is not None:
                taken += 1
                header = check_batch(batch, size_max=partition.policy.message_bytes_max)
                if not header.codec:
                    check_records(batch, header, keys_needed=False)
                assert partition.end_offset == base + header.record_count, SEED
            await log.store.wal.drain()
            partition.mark_uploaded(partition.durable_end)
            await log.store.trim()
        assert taken


async def test_frames_of_strangers_end_in_an_answer_or_in_python(tmp_path: Path) -> None:
    async with opened_door(tmp_path, ["plain", "other"], auto_create_topics_enable=False) as door:
        assert door.door.common is not None
        served = 0
        for chance in while_there_is_time():
            wire = door.connect()
            stream = b"".join(_frame(chance) for _ in range(chance.randint(1, 4)))
            # A buffer that ends where the bytes do: whoever reads on is seen.
            view = memoryview(bytearray(damaged(stream, chance)))
            end = door.door.common.take_all(view, len(view), wire._connection)
            assert 0 <= end <= len(view), SEED
            served += end > 0
            await door.settle()
            wire.close()
            for name in ("plain", "other"):
                partition = door.topics.get(name).partitions[0]
                partition.mark_uploaded(partition.durable_end)
            await door.log.store.trim()
        assert served


def _frame(chance: random.Random) -> bytes:
    rows = [
        TopicProduceData(
            chance.choice(("plain", "other", "nowhere", "")),
            bytes(16),
            [PartitionProduceData(0, damaged(some_batch(chance), chance)) for _ in range(chance.randint(0, 3))],
        )
        for _ in range(chance.randint(0, 3))
    ]
    request = ProduceRequest(None, chance.choice((-1, 1)), 1000, rows)
    return bytes(encode_request(request, chance.randint(7, 13), 7, chance.choice(("client", None, ""))))


def test_a_summary_of_batches_is_that_of_the_twin() -> None:
    for chance in while_there_is_time():
        batches = damaged(b"".join(some_batch(chance) for _ in range(chance.randint(1, 4))), chance)
        start, size_min = chance.choice((0, 0, 0, 1, len(batches))), chance.choice((0, 1, 200, 1 << 40))
        assert _outcome(lambda b=batches, s=start, m=size_min: stretch.summary_of(b, s, m), Corrupted) == _outcome(  # type: ignore[misc]
            lambda b=batches, s=start, m=size_min: stretch._summary_of(b, s, m),  # type: ignore[misc]
            Corrupted,
        ), SEED
        assert stretch._kernel is not None
        _outcome(lambda b=batches: stretch._kernel.crc_of_batches(b, 0), ValueError)  # type: ignore[misc]


@pytest.mark.parametrize("summary_of", [stretch.summary_of, stretch._summary_of])
def test_a_batch_past_the_last_offset_is_no_batch(summary_of: Callable[..., stretch.Summary]) -> None:
    batch = bytearray(build_batch([NewRecord(value=b"one"), NewRecord(value=b"two")], now_ms=NOW_MS))
    batch[:8] = (2**63 - 2).to_bytes(8, "big")
    assert summary_of(batch, 0, 0).last_offset == 2**63 - 1
    batch[:8] = (2**63 - 1).to_bytes(8, "big")
    with pytest.raises(Corrupted):
        summary_of(batch, 0, 0)


def test_a_walk_over_records_is_that_of_the_twin() -> None:
    for chance in while_there_is_time():
        whole = some_batch(chance)
        payload, count = damaged(whole[HEADER_SIZE:], chance), read_header(whole).record_count
        first, since, is_sparse = chance.randrange(4), chance.choice((0, 1, -(2**63), 2**63 - 1)), chance.random() < 0.5
        end = chance.choice((-1, 0, count, count + 1))
        found = walk.walk_records(
            payload, count, first_delta=first, timestamp_delta=since, is_sparse=is_sparse, delta_end=end
        )
        assert found == walk._walk(payload, count, first, since, is_sparse, end), SEED
        if walk._kernel is not None:
            said = chance.choice((count, 0, 2**31 - 1))
            assert walk._kernel.ends(payload, said) == walk._ends(payload, said), SEED


def test_records_are_decoded_as_the_twin_decodes_them() -> None:
    from headrace.pipeline.decoder import compiled as decoder

    columns = frozenset({"key", "value", "offset", "timestamp", "timestampType", "headers"})
    for chance in while_there_is_time():
        whole = some_batch(chance)
        payload = damaged(whole[HEADER_SIZE:], chance)
        sections = Sections()
        try:
            sections.add(memoryview(payload), 0, len(payload), read_header(whole), memoryview(whole))
        except CorruptBatch:
            continue  # No kernel is asked.
        window: dict[str, Any] = {"first": 0, "end": chance.choice((1, 3, 1 << 40)), "columns": columns}
        found = _outcome(lambda s=sections, w=window: _lists(decoder.decode(s, **w)), CorruptBatch)  # type: ignore[misc]
        expected = _outcome(lambda s=sections, w=window: _lists(vector.decode(s, **w)), CorruptBatch)  # type: ignore[misc]
        assert found == expected, SEED


def _lists(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array.to_pylist() for name, array in arrays.items()}


def _outcome(call: Callable[[], Any], refusal: type[Exception]) -> Any:
    try:
        return call()
    except refusal:
        return refusal
