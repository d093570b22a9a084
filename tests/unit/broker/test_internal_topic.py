"""An internal topic read back: what nobody can make sense of is left out and said aloud, and the rest counts."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c
from tests.support.coordinator_bench import CoordinatorBench
from tests.support.logs import NOW_MS, Opened, opened

from headrace.broker.offset_records import CommittedOffset, encode_consumer_group, encode_offset
from headrace.broker.transactions.events import TransactionImage, TransactionState
from headrace.broker.transactions.records import encode
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

GOOD = encode_offset("g", "t", 0, CommittedOffset(offset=7, commit_ms=1))
GARBAGE = [
    NewRecord(value=b"from a client"),
    NewRecord(key=b"", value=b"no version"),
    NewRecord(key=b"\0", value=b"half a version"),
    NewRecord(key=b"\0\1\0\xff", value=b"a name that is not there"),
    NewRecord(key=b"\0\2\0\1g", value=b"\0\3\xff"),
    NewRecord(key=encode_consumer_group("g", None).key, value=b"not msgpack"),
    NewRecord(key=GOOD.key, value=b""),
]


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Opened]:
    async with opened(tmp_path) as log:
        yield log


def over(log: Opened) -> CoordinatorBench:
    """Coordinators that read both of their topics from the one partition of `log`."""
    bench = CoordinatorBench(is_loaded=False)
    topic = SimpleNamespace(partitions=log.partitions)
    for each in (bench.offsets_log, bench.transactions_log):
        each._topics = cast(Any, SimpleNamespace(find=lambda _: topic))
    return bench


async def put(log: Opened, *batches: bytearray) -> None:
    for batch in batches:
        log.partitions[0].append_control(batch, now_ms=NOW_MS)
    await log.store.wal.drain()


def broken_inside() -> bytearray:
    """A good checksum around records that do not parse."""
    batch = build_batch([NewRecord(key=b"k", value=b"v")], now_ms=NOW_MS)
    batch[61] = 0xFF
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


async def test_offsets_and_groups_load_past_records_that_cannot_be_read(log: Opened) -> None:
    await put(log, build_batch([*GARBAGE[:3], GOOD, *GARBAGE[3:6]], now_ms=NOW_MS), broken_inside())
    bench = over(log)
    await bench.groups.load()
    assert bench.committed() == 7
    (problem,) = bench.problems.standing()
    assert problem.startswith("7 records of __consumer_offsets cannot be read and are left out")
    await bench.stop()


@pytest.mark.parametrize("record", GARBAGE)
async def test_every_kind_of_garbage_is_left_out(log: Opened, record: NewRecord) -> None:
    await put(log, build_batch([record], now_ms=NOW_MS))
    bench = over(log)
    await bench.groups.load()
    assert bench.groups.listings() == []
    assert len(bench.problems.standing()) == 1
    await bench.stop()


async def test_transactions_load_past_records_that_cannot_be_read(log: Opened) -> None:
    image = TransactionImage(producer_id=9, epoch=0, timeout_ms=1000, state=TransactionState.EMPTY, updated_ms=NOW_MS)
    good = encode("x", image)
    assert good.value is not None
    unknown_state = NewRecord(key=good.key, value=good.value.replace(b"\0\0\3\xe8\0", b"\0\0\3\xe8\x63"))
    assert unknown_state.value != good.value
    marker = build_marker(is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)
    await put(log, marker, build_batch([GARBAGE[0], good, unknown_state, GARBAGE[1]], now_ms=NOW_MS))
    bench = over(log)
    await bench.transactions.load()
    assert list(bench.transactions.all()) == ["x"]
    (problem,) = bench.problems.standing()
    assert problem.startswith("3 records of __transaction_state cannot be read and are left out")
    await bench.stop()


async def test_the_problem_goes_when_a_later_reading_finds_none(log: Opened) -> None:
    bench = over(log)
    await put(log, build_batch([GARBAGE[0]], now_ms=NOW_MS))
    await bench.groups.load()
    log.partitions[0].advance_log_start(1)
    assert bench.problems.standing()
    async for _ in bench.offsets_log.replay():
        pass
    assert not bench.problems.standing()
    await bench.stop()
