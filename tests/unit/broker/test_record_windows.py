"""Batches with very many records, read record by record: never on the loop, and never all of them at once."""

import threading
from itertools import chain
from pathlib import Path

import pytest
from tests.support.bombs import bomb
from tests.support.logs import NOW_MS, Opened, batch_of, opened
from tests.support.metastores import ManualClock

from headrace.broker import record_windows
from headrace.broker.decoded_batches import DECOMPRESSED_AT_ONCE
from headrace.broker.fetch import Fetch
from headrace.broker.record_windows import RECORDS_AT_ONCE
from headrace.records import walk
from headrace.records.batch import Codec
from headrace.records.builder import build_batch
from headrace.records.compression import decompress
from headrace.records.record import NewRecord, read_record_at, read_varint

COUNT = 2 * RECORDS_AT_ONCE + 7


async def read_all(fetch: Fetch, log: Opened, *, offset: int = 0, max_records: int = 1 << 20) -> list[list[int]]:
    """The offsets of every read, until there is nothing left."""
    (partition,) = log.partitions
    reads = []
    while offset < partition.high_watermark:
        found = await fetch.read_records(partition, offset, max_bytes=1 << 20, max_records=max_records)
        reads.append([record.offset for record in found.records])
        assert found.next_offset > offset
        offset = found.next_offset
    return reads


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda each: each.name)
async def test_every_record_of_a_heavy_batch_is_read_some_at_a_time(tmp_path: Path, codec: Codec) -> None:
    heavy = build_batch([NewRecord(value=b"") for _ in range(COUNT)], now_ms=NOW_MS, codec=codec)
    async with opened(tmp_path) as log:
        for batch in (batch_of(b"before"), heavy, batch_of(b"behind")):
            await log.append(batch)
        reads = await read_all(Fetch(ManualClock(NOW_MS)), log)
        assert list(chain(*reads)) == list(range(COUNT + 2))
        assert max(map(len, reads)) <= RECORDS_AT_ONCE


@pytest.mark.parametrize("offset", [0, 1, RECORDS_AT_ONCE, COUNT - 1])
async def test_a_heavy_batch_is_read_from_any_offset(tmp_path: Path, offset: int) -> None:
    async with opened(tmp_path) as log:
        await log.append(bytearray(bomb(COUNT, is_sound=True)))
        fetch = Fetch(ManualClock(NOW_MS))
        for _ in range(2):
            reads = await read_all(fetch, log, offset=offset, max_records=3)
            assert list(chain(*reads[:2])) == list(range(offset, min(offset + 6, COUNT)))


async def test_a_heavy_batch_is_taken_apart_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def noting(*arguments: object, **named: object) -> object:
        threads.add(threading.current_thread())
        return read_record_at(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(record_windows, "read_record_at", noting)
    async with opened(tmp_path) as log:
        await log.append(bytearray(bomb(COUNT, is_sound=True)))
        await read_all(Fetch(ManualClock(NOW_MS)), log)
    assert threads
    assert threading.current_thread() not in threads


async def test_a_batch_that_inflates_to_much_is_taken_apart_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def noting(*arguments: object, **named: object) -> object:
        threads.add(threading.current_thread())
        return read_record_at(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(record_windows, "read_record_at", noting)
    values = [b"small", b"0" * (DECOMPRESSED_AT_ONCE + 1), b"small too"]
    async with opened(tmp_path) as log:
        for value in values:
            await log.append(build_batch([NewRecord(value=value)], now_ms=NOW_MS, codec=Codec.ZSTD))
        fetch = Fetch(ManualClock(NOW_MS))
        (partition,) = log.partitions
        found = [
            (await fetch.read_records(partition, offset, max_bytes=1 << 20, max_records=100)).records
            for offset in range(3)
        ]
    assert [[record.value for record in records] for records in found] == [[values[0]], [values[1]], [values[2]]]
    assert threads
    assert threading.current_thread() not in threads


async def test_many_batches_give_no_more_records_at_once_than_a_heavy_one(tmp_path: Path) -> None:
    count = RECORDS_AT_ONCE // 2 + 1
    async with opened(tmp_path) as log:
        for _ in range(5):
            await log.append(build_batch([NewRecord(value=b"") for _ in range(count)], now_ms=NOW_MS))
        reads = await read_all(Fetch(ManualClock(NOW_MS)), log)
    assert list(chain(*reads)) == list(range(5 * count))
    assert max(map(len, reads)) <= RECORDS_AT_ONCE


@pytest.mark.parametrize("count", [1, RECORDS_AT_ONCE + 1], ids=["at once", "beside the loop"])
async def test_headers_are_not_taken_apart(tmp_path: Path, count: int) -> None:
    """The doors that read single records do not know headers, and a record may have half a million of them."""
    headers = (("name", b"value"),) * 3
    async with opened(tmp_path) as log:
        await log.append(build_batch([NewRecord(value=b"v", headers=headers)] * count, now_ms=NOW_MS))
        (partition,) = log.partitions
        found = await Fetch(ManualClock(NOW_MS)).read_records(partition, 0, max_bytes=1 << 20, max_records=1)
    assert [(record.value, record.headers) for record in found.records] == [(b"v", ())]


async def test_who_goes_on_where_he_stopped_does_not_pass_over_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0

    def counting(data: bytes, position: int) -> tuple[int, int]:
        nonlocal passed
        passed += 1
        return read_varint(data, position)

    monkeypatch.setattr(record_windows, "read_varint", counting)
    async with opened(tmp_path) as log:
        await log.append(bytearray(bomb(COUNT, is_sound=True)))
        await read_all(Fetch(ManualClock(NOW_MS)), log, max_records=1_000)
    assert passed < COUNT + 100


async def test_a_search_by_time_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(*arguments: object, **named: object) -> object:
        nonlocal looked
        looked += 1
        return decompress(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(walk, "decompress", counting)
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for _ in range(3):
            await log.append(bytearray(bomb(100)))
        first = looked
        for _ in range(3):
            assert await partition.find_time(NOW_MS + 1) is None
        assert looked - first == 3
        for _ in range(3):
            assert await partition.newest_record() is not None
        assert looked - first == 5
        partition.advance_log_start(1)
        assert await partition.find_time(NOW_MS + 1) is None
        assert looked - first == 6, "only the batch that the log now begins in is looked into again"
