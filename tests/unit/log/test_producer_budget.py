"""Producer ids that a client makes up: bounded, and nobody who may still repeat a batch is forgotten for them."""

from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, Opened, batch_of, opened

from headrace.errors import Overloaded
from headrace.log.partition import Appended
from headrace.log.producer_budget import REPEATED_MS_MAX
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

LATER_MS = NOW_MS + REPEATED_MS_MAX + 1


def write(log: Opened, producer_id: int, *, sequence: int = 0, now_ms: int = NOW_MS, partition: int = 0) -> Appended:
    batch = batch_of(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return log.partitions[partition].append(batch, now_ms=now_ms)


def known(log: Opened, partition: int = 0) -> list[int]:
    producers = log.partitions[partition].producers
    return [] if producers is None else [producer_id for producer_id, _ in producers.items()]


async def test_a_partition_remembers_a_bounded_number_of_producers(tmp_path: Path) -> None:
    async with opened(tmp_path, producer_ids_per_partition_max=10) as log:
        for producer_id in range(10):
            write(log, producer_id)
        end = log.partitions[0].end_offset
        for made_up in range(1000, 1100):
            with pytest.raises(Overloaded):
                write(log, made_up)
        assert (len(known(log)), log.partitions[0].end_offset) == (10, end)
        assert write(log, 3, sequence=1).base_offset == end, "who is known goes on"
        assert write(log, 3, sequence=0).is_duplicate
        log.partitions[0].append(batch_of(b"without an id"), now_ms=NOW_MS)


async def test_all_partitions_together_have_a_bound_too(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=3, producer_ids_max=6) as log:
        for number in range(6):
            write(log, number, partition=number % 3)
        for partition in range(3):
            with pytest.raises(Overloaded):
                write(log, 99, partition=partition)
        write(log, 99, partition=1, now_ms=LATER_MS)
        assert sum(len(known(log, each)) for each in range(3)) == 1


async def test_only_who_was_silent_for_longer_than_clients_repeat_makes_room(tmp_path: Path) -> None:
    async with opened(tmp_path, producer_ids_per_partition_max=4) as log:
        for producer_id in range(4):
            write(log, producer_id)
        write(log, 1, sequence=1, now_ms=LATER_MS - 1000)
        assert write(log, 2, sequence=0, now_ms=LATER_MS - 1000).is_duplicate
        write(log, 99, now_ms=LATER_MS)
        assert known(log) == [1, 2, 99]
        assert write(log, 1, sequence=1, now_ms=LATER_MS).is_duplicate
        assert write(log, 2, sequence=0, now_ms=LATER_MS).is_duplicate, "it repeats its batch still"


async def test_a_producer_with_an_open_transaction_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, producer_ids_per_partition_max=2) as log:
        (partition,) = log.partitions
        records = [NewRecord(value=b"x")]
        open_batch = build_batch(
            records, now_ms=NOW_MS, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        partition.append(open_batch, now_ms=NOW_MS)
        write(log, 6)
        write(log, 7, now_ms=LATER_MS)
        assert known(log) == [5, 7]
        marker = build_marker(is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=LATER_MS)
        partition.append_control(marker, now_ms=LATER_MS)
        assert known(log) == [5, 7]


async def test_forgetting_looks_at_everybody_at_most_once_a_second(tmp_path: Path) -> None:
    async with opened(tmp_path, producer_ids_per_partition_max=2) as log:
        looked = 0
        forget = log.store.producer_budget._forget

        def counted(*arguments: object) -> int:
            nonlocal looked
            looked += 1
            return forget(*arguments)  # type: ignore[arg-type]

        log.store.producer_budget._forget = counted
        for producer_id in range(2):
            write(log, producer_id)
        for number in range(100):
            with pytest.raises(Overloaded):
                write(log, 100 + number, now_ms=NOW_MS + number * 20)
        assert looked == 2


async def test_the_bound_counts_what_an_earlier_life_remembers(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        for producer_id in range(5):
            write(log, producer_id)
        await log.store.wal.drain()
    async with opened(tmp_path, producer_ids_max=5) as log:
        with pytest.raises(Overloaded):
            write(log, 99)
        assert write(log, 3, sequence=0).is_duplicate
