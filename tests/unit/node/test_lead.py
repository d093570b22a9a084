"""What a broker does between recovery and its first door, interrupted anywhere: no offset is given out twice."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tier_node import TierNode, read_all, records_of, values_of

from headrace.blob.local import LocalBlobStore
from headrace.clock import SystemClock
from headrace.control.embedded import EmbeddedMetastore
from headrace.disk import Disk
from headrace.errors import Conflict, StoreUnavailable
from headrace.log import checkpoint
from headrace.log import store as log_store
from headrace.log.partition import PartitionLog
from headrace.log.wal.writer import WalWriter
from headrace.node.lead import check_name, former_name
from headrace.node.metastore import METASTORE_FILE
from headrace.records.batch import iterate_batches
from headrace.tier.restore import restore_metastore

UPLOADED, ACKED = 100, 150


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Steps:
    """Counts what is made durable or asked of the bucket, before and after each, and dies at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.last: int | None = None
        for owner, name in (
            (EmbeddedMetastore, "txn"),
            (WalWriter, "drain"),
            (LocalBlobStore, "get"),
            (LocalBlobStore, "put_if_absent"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))
        write = checkpoint.write_checkpoint

        def write_checkpoint(directory: Path, data: bytes, *, disk: Disk) -> None:
            self.reach()
            write(directory, data, disk=disk)
            self.reach()

        monkeypatch.setattr(log_store, "write_checkpoint", write_checkpoint)

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:  # Any: whatever the method takes and gives
        async def counted(*arguments: Any, **options: Any) -> Any:  # Any: as above
            self.reach()
            result = await method(*arguments, **options)
            self.reach()
            return result

        return counted

    def reach(self) -> None:
        self.taken += 1
        if self.last is not None and self.taken >= self.last:
            raise Killed


async def lose_everything_but_the_bucket(directory: Path, *, is_snapshot_taken: bool = True) -> None:
    """150 acknowledged, 100 of them uploaded; then WAL, metastore and the broker's name are lost."""
    node = await TierNode(directory, LocalBlobStore(directory / "objects"), name="gone").start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, *(f"{number}" for number in range(UPLOADED)))
    await node.upload()
    if is_snapshot_taken:
        await node.save_state()
    appended = await node.append(partition, *(f"{number}" for number in range(UPLOADED, ACKED)))
    assert appended.end_offset == ACKED
    await node.crash()
    await node.blobs.close()
    shutil.rmtree(directory / "wal")
    remove_metastore(directory)


def remove_metastore(directory: Path) -> None:
    for path in directory.glob(f"{METASTORE_FILE}*"):
        path.unlink()


async def restore(directory: Path, *, leader: str = "new") -> None:
    blobs = LocalBlobStore(directory / "objects")
    store = await EmbeddedMetastore.open(directory / METASTORE_FILE)
    try:
        await restore_metastore(blobs, store, leader=leader, clock=SystemClock())
    finally:
        await store.close()
        await blobs.close()


async def abandon(node: TierNode) -> None:
    """As a kill would leave it: nothing is flushed, no checkpoint, no end mark."""
    if hasattr(node, "tier"):
        await node.tier.stop()
    if hasattr(node, "logs"):
        if hasattr(node.logs, "wal"):
            node.logs.wal._flusher.close()
            if node.logs.wal._idle_timer is not None:
                node.logs.wal._idle_timer.cancel()
        node.logs.file.close()
    if hasattr(node, "metastore"):
        await node.metastore.close()
    await node.blobs.close()


async def reads_to_the_end(partition: PartitionLog) -> bool:
    """As a consumer: each read begins where the last batch of the one before ended."""
    offset = partition.log_start
    while offset < partition.high_watermark:
        if partition.is_hot(offset):
            found = partition.read_tail(offset, 1 << 20, partition.high_watermark, at_least_one=True).slices
        else:
            found = await partition.read_cold(offset, 1 << 20, partition.high_watermark)  # type: ignore[assignment]
        ends = [header.end_offset for buffer in found for header, _ in iterate_batches(buffer)]
        if not ends or ends[-1] <= offset:
            return False
        offset = ends[-1]
    return True


async def check_started(node: TierNode) -> None:
    partition = node.topics.partition("t", 0)
    assert await reads_to_the_end(partition), "a consumer stands before the lost offsets for ever"
    assert values_of(await read_all(partition)) == [f"{number}" for number in range(UPLOADED)]
    appended = await node.append(partition, "after")
    assert appended.base_offset >= ACKED, "an offset was given out twice"
    assert await reads_to_the_end(partition)


@pytest.mark.parametrize("is_snapshot_taken", [True, False])
async def test_a_restore_takes_over_from_a_broker_that_is_gone(tmp_path: Path, is_snapshot_taken: bool) -> None:
    await lose_everything_but_the_bucket(tmp_path, is_snapshot_taken=is_snapshot_taken)
    await restore(tmp_path)
    node = await TierNode(tmp_path, LocalBlobStore(tmp_path / "objects"), name="new").start()
    entry = node.cluster.topics.partition("t", 0)
    assert (entry.leader, list(entry.replicas)) == ("new", ["new"])
    assert entry.leader_epoch > 0
    assert node.tier.states._broker == 1, "what the broker before has saved is found under its number"
    await check_started(node)
    await node.stop()


async def test_no_kill_between_restore_and_first_acknowledgement_skips_a_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at every step; and once more at every step with every later one killed as well, one start each."""
    await lose_everything_but_the_bucket(tmp_path / "lost")
    await restore(tmp_path / "lost")
    last = 0
    while True:
        last += 1
        directory = tmp_path / f"{last}"
        shutil.copytree(tmp_path / "lost", directory)
        with monkeypatch.context() as patch:
            is_up = await start_and_die(directory, Steps(patch), last)
        node = await TierNode(directory, LocalBlobStore(directory / "objects"), name="new").start()
        await check_started(node)
        await node.stop()
        await node.blobs.close()
        shutil.rmtree(directory)
        if is_up:
            break
    assert last > 10, "the steps of a start are counted"


async def test_any_number_of_killed_starts_skips_no_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await lose_everything_but_the_bucket(tmp_path)
    await restore(tmp_path)
    last, is_up = 0, False
    while not is_up:
        last += 1
        with monkeypatch.context() as patch:
            is_up = await start_and_die(tmp_path, Steps(patch), last)
    node = await TierNode(tmp_path, LocalBlobStore(tmp_path / "objects"), name="new").start()
    await check_started(node)
    await node.stop()


async def start_and_die(directory: Path, steps: Steps, last: int) -> bool:
    """True when the node was up before it came to that step; it is killed all the same."""
    steps.last = last
    node = TierNode(directory, LocalBlobStore(directory / "objects"), name="new")
    try:
        await node.start()
        return True
    except Killed:
        return False
    finally:
        steps.last = None
        await abandon(node)


async def test_who_has_read_lost_records_is_not_sent_back(tmp_path: Path) -> None:
    """Asked where the epoch of its position ended: the empty batch over the lost offsets belongs to no later one."""
    node = await TierNode(tmp_path, LocalBlobStore(tmp_path / "objects")).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, *(f"{number}" for number in range(UPLOADED)))
    await node.upload()
    epoch = partition.leader_epoch
    await node.append(partition, *(f"{number}" for number in range(UPLOADED, ACKED)))
    await node.crash()
    shutil.rmtree(tmp_path / "wal")
    for _ in range(2):
        await node.start()
        partition = node.topics.partition("t", 0)
        end = partition.end_of_epoch(epoch)
        assert end is not None
        assert ACKED <= end.start_offset <= partition.high_watermark
        await node.append(partition, "after")
        assert partition.end_of_epoch(epoch) == end
        await node.crash()
    await node.blobs.close()


async def test_a_failed_start_does_not_hide_that_the_bucket_must_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is gone and the store is down: the refused start must not leave a checkpoint that knows nothing."""
    node = await TierNode(tmp_path, LocalBlobStore(tmp_path / "objects")).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    await node.append(partition, "a")
    await node.upload()
    await node.crash()
    (tmp_path / "wal" / "checkpoint").unlink()
    asked: list[bool] = []

    async def down(*_: object) -> bool:
        asked.append(True)
        raise StoreUnavailable("503")

    monkeypatch.setattr("headrace.tier.states.BrokerStates._ask_bucket", down)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await node.start()
        await node.stop()
    assert len(asked) == 2
    await node.blobs.close()


async def test_a_node_that_lost_its_name_keeps_the_one_its_metastore_knows(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, name="first").start()
    assert former_name(node.cluster) is None
    await node.topics.create("t", partitions=2)
    assert former_name(node.cluster) == "first"
    check_name("first", node.cluster)
    with pytest.raises(Conflict, match=r"led by first, and this broker is second: start it with broker\.id=first"):
        check_name("second", node.cluster)
    await node.stop()


def test_records_of_an_empty_batch_are_none() -> None:
    from headrace.records.builder import GAP_OFFSETS_MAX, build_gap

    gap = build_gap(GAP_OFFSETS_MAX)
    ((header, _),) = iterate_batches(gap)
    assert (header.record_count, header.end_offset) == (0, GAP_OFFSETS_MAX)
    assert records_of([gap]) == []
