"""The WAL of a broker that is gone, read by another: all that it acknowledged, and the same for whoever comes to read it again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.logs import TOPIC_ID, Opened, batch_of, opened

from headrace.clock import SystemClock
from headrace.disk import OS_DISK
from headrace.errors import NotLeader
from headrace.log import homes
from headrace.log.foreign import ForeignRing, ForeignWal
from headrace.log.partition import PartitionLog
from headrace.log.policy import TopicPolicy
from headrace.log.recovery import Recovery
from headrace.records.record import read_batch_records

Key = tuple[bytes, int]


def partition_of(taker: Opened, index: int = 0, *, uploaded_end: int = 0) -> PartitionLog:
    made = PartitionLog(
        taker.store,
        topic_id=TOPIC_ID,
        topic_name="topic",
        index=index,
        leader_epoch=1,
        policy=TopicPolicy(),
        ceiling=1000,
    )
    made.uploaded_end = uploaded_end
    return made


class Reader:
    """One who takes over the WAL in `home`."""

    def __init__(self, taker: Opened, home: Path, *, uploaded_end: int = 0) -> None:
        self.wal = ForeignWal(home, disk=OS_DISK, clock=SystemClock())
        self.partition = partition_of(taker, uploaded_end=uploaded_end)
        self.partitions: dict[Key, PartitionLog] = {(TOPIC_ID, 0): self.partition}

    def read(self, *, since: int = 0, sealed_lsn: int | None = None, durable_lsn: int = 0) -> Recovery:
        return self.wal.read(
            self.partitions, since={(TOPIC_ID, 0): since}, sealed_lsn=sealed_lsn, durable_lsn=durable_lsn
        )

    def values(self) -> list[bytes | None]:
        batches = [self.wal.batch(each) for each in self.wal.found(self.partitions)]
        return [record.value for batch in batches for record in read_batch_records(batch)]


async def test_all_that_object_storage_has_not_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path / "owner", is_clean=False) as owner, opened(tmp_path / "taker") as taker:
        for number, value in enumerate((b"first", b"second", b"third")):
            await owner.append(batch_of(value, producer_id=7, producer_epoch=0, base_sequence=number))
            if not number:
                await owner.store.checkpoint()
        reader = Reader(taker, tmp_path / "owner" / "wal", uploaded_end=1)
        reader.wal.fence()
        assert reader.read().is_complete
        assert reader.values() == [b"second", b"third"]
        assert reader.partition.end_offset == 3
        assert reader.partition.producers is not None
        with pytest.raises(NotLeader, match="fenced"):
            await owner.append(batch_of(b"too late"))


async def test_a_sealed_wal_reads_the_same_for_whoever_comes_later(tmp_path: Path) -> None:
    async with opened(tmp_path / "owner", is_clean=False) as owner, opened(tmp_path / "taker") as taker:
        await owner.append(batch_of(b"acknowledged"))
        first = Reader(taker, tmp_path / "owner" / "wal")
        first.wal.fence()
        first.read()
        # The owner had this one under way; it is on its disk, and nobody heard of it.
        with pytest.raises(NotLeader):
            await owner.append(batch_of(b"under way"))
        second = Reader(taker, tmp_path / "owner" / "wal")
        second.read(sealed_lsn=first.wal.end_lsn)
        assert second.values() == first.values() == [b"acknowledged"]
        assert (second.wal.end_lsn, second.partition.end_offset) == (first.wal.end_lsn, 1)


async def test_what_the_ring_had_of_a_partition_at_another_time_does_not_count(tmp_path: Path) -> None:
    async with opened(tmp_path / "owner", is_clean=False) as owner, opened(tmp_path / "taker") as taker:
        await owner.append(batch_of(b"of another time"))
        since = owner.store.wal.next_lsn
        owner.partitions[0].end_offset = 0
        await owner.append(batch_of(b"of this time"))
        reader = Reader(taker, tmp_path / "owner" / "wal")
        reader.read(since=since)
        assert reader.values() == [b"of this time"]


async def test_a_wal_that_ends_too_early_goes_on_above_the_ceiling(tmp_path: Path) -> None:
    async with opened(tmp_path / "owner", is_clean=False) as owner, opened(tmp_path / "taker") as taker:
        await owner.append(batch_of(b"first"))
        reader = Reader(taker, tmp_path / "owner" / "wal")
        recovery = reader.read(durable_lsn=owner.store.wal.durable_lsn + 4096)
        assert recovery.shortfall is not None
        assert reader.partition.end_offset == reader.partition.ceiling
        assert reader.values() == [b"first"]


async def test_a_ring_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "owner", is_clean=False) as owner, opened(tmp_path / "taker") as taker:
        await owner.append(batch_of(b"first"))
        looked: list[bool] = []
        is_unchanged: Callable[[ForeignRing], bool] = ForeignRing.is_unchanged

        def once_changed(ring: ForeignRing) -> bool:
            if not looked:
                owner.store.file.write_superblock(owner.store.file.superblock)
            looked.append(is_unchanged(ring))
            return looked[-1]

        monkeypatch.setattr(ForeignRing, "is_unchanged", once_changed)
        reader = Reader(taker, tmp_path / "owner" / "wal")
        reader.read()
        assert looked == [False, True]
        assert reader.values() == [b"first"]


def test_a_fenced_place_is_left_for_the_next_and_found_by_its_ring(tmp_path: Path) -> None:
    assert homes.home_in_use(tmp_path, OS_DISK) == tmp_path
    homes.fence(tmp_path, OS_DISK)
    second = homes.home_in_use(tmp_path, OS_DISK)
    assert second == tmp_path / "ring-2"
    OS_DISK.make_directory(second)
    homes.fence(second, OS_DISK)
    assert homes.home_in_use(tmp_path, OS_DISK) == tmp_path / "ring-3"
    assert homes.ring_in(tmp_path, OS_DISK) is None


async def test_a_ring_is_found_wherever_it_lies_and_cleared_when_nobody_needs_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as owner:
        ring_id = owner.store.ring_id
    first = tmp_path / "wal"
    assert homes.find_ring(first, ring_id, OS_DISK) == first
    homes.fence(first, OS_DISK)
    assert homes.find_ring(first, ring_id, OS_DISK) == first
    homes.clear(first, OS_DISK)
    assert homes.find_ring(first, ring_id, OS_DISK) is None
    assert [each.name for each in first.iterdir()] == ["FENCE"]
