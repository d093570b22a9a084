"""What became of a transaction is looked up, never guessed; and no object goes while the metastore has a segment in it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.metastores import ManualClock
from tests.support.tier_node import QUIET, TierNode, read_all, read_bucket, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Delete, Metastore, Op, Put, TxnResult, only
from headrace.errors import AlreadyExists
from headrace.tier import plans

SETTINGS = msgspec.structs.replace(QUIET, grace_ms=1000, upload_stream_bytes=1)


class CancellingMetastore:
    """Carries a commit of segments out and never says so: whoever waits for it is cancelled."""

    def __init__(self, store: Metastore) -> None:
        self._store = store
        self.is_silent = False
        self.is_silenced = asyncio.Event()

    def __getattr__(self, name: str) -> Any:  # Any: whatever the wrapped store has
        return getattr(self._store, name)

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        result = await self._store.txn(compares, then_ops, else_ops)
        if self.is_silent and any(isinstance(op, Put) and op.key in plans.PENDING_MANIFESTS for op in then_ops):
            self.is_silenced.set()
            await asyncio.Event().wait()
        return result


async def started(directory: Path, blobs: MemoryBlobStore | None = None, **settings: Any) -> TierNode:
    clock = ManualClock()
    node = TierNode(
        directory, blobs or MemoryBlobStore(clock), SETTINGS, clock=clock, is_running_tier=False, **settings
    )
    await node.start()
    await node.topics.create("t", partitions=2)
    return node


async def statuses(node: TierNode) -> list[int]:
    items = (await node.metastore.range(keys.OBJECTS)).items
    return [values.decode(pb.TierObject, item.value).status for item in items]


async def sweep_for_long(node: TierNode) -> None:
    assert isinstance(node.clock, ManualClock)
    for _ in range(4):
        node.clock.advance(10 * SETTINGS.grace_ms)
        await node.tier.sweeper.sweep()


async def test_a_commit_that_nobody_heard_of_is_found_and_gone_on_from(tmp_path: Path) -> None:
    wrapped: list[CancellingMetastore] = []

    def wrap(store: Metastore) -> Any:  # Any: it has all that the store has
        wrapped.append(CancellingMetastore(store))
        return wrapped[0]

    node = await started(tmp_path, wrap=wrap)
    first = node.topics.partition("t", 0)
    await node.append(first, "a", "b")
    wrapped[0].is_silent = True
    upload = asyncio.ensure_future(node.tier.uploader.upload_round())
    await wrapped[0].is_silenced.wait()
    upload.cancel()
    await asyncio.gather(upload, return_exceptions=True)
    wrapped[0].is_silent = False
    assert first.uploaded_end == 0

    await node.append(first, "c")
    assert await node.tier.uploader.upload_round()
    assert first.uploaded_end == 3
    await sweep_for_long(node)
    assert await statuses(node) == [pb.COMMITTED, pb.COMMITTED]
    await node.tier.ledger.write_pending()
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["a", "b", "c"]
    await node.stop()


async def test_an_object_that_memory_has_forgotten_stays_while_a_segment_is_in_it(tmp_path: Path) -> None:
    node = await started(tmp_path)
    partition = node.topics.partition("t", 0)
    await node.append(partition, "a")
    await node.upload()
    place = (partition.topic_id, partition.index)
    node.tier.table.remove(place, list(node.tier.table.of(place)))
    await sweep_for_long(node)
    assert await statuses(node) == [pb.COMMITTED]
    # Memory was put right as well.
    assert [segment.end_offset for segment in node.tier.table.of(place)] == [1]
    assert values_of(await read_all(partition)) == ["a"]
    await node.stop()


async def test_an_object_that_was_wrongly_marked_once_is_kept_and_marked_anew(tmp_path: Path) -> None:
    """A metastore of a version that could mark an object superseded although a segment was in it."""
    node = await started(tmp_path)
    partition = node.topics.partition("t", 0)
    await node.append(partition, "a")
    await node.upload()
    (item,) = (await node.metastore.range(keys.OBJECTS)).items
    entry = values.decode(pb.TierObject, item.value)
    entry.status = pb.SUPERSEDED
    await node.metastore.txn((), (Put(item.key, values.encode(entry)),))
    await node.restart()
    await sweep_for_long(node)
    assert await statuses(node) == [pb.COMMITTED]
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["a"]
    await node.stop()


async def test_an_object_without_an_entry_is_no_orphan_while_a_segment_is_in_it(tmp_path: Path) -> None:
    node = await started(tmp_path)
    await node.append(node.topics.partition("t", 0), "a")
    await node.upload()
    (item,) = (await node.metastore.range(keys.OBJECTS)).items
    await node.metastore.txn((), (Delete(only(item.key)),))
    assert isinstance(node.clock, ManualClock)
    node.clock.advance(10 * SETTINGS.grace_ms)
    assert await node.tier.sweeper.collect_orphans() == 0
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["a"]
    await node.stop()


class LyingStore(MemoryBlobStore):
    """Says of new objects that they exist, for as long as it lies."""

    is_lying = False

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        if self.is_lying:
            raise AlreadyExists(key)
        await super().put_if_absent(key, chunks)


async def test_uploads_go_on_after_a_store_said_of_new_objects_that_they_exist(tmp_path: Path) -> None:
    store = LyingStore(ManualClock())
    node = await started(tmp_path, store)
    for index in range(2):
        await node.append(node.topics.partition("t", index), "a")
    store.is_lying = True
    assert not await node.tier.uploader.upload_round()
    store.is_lying = False
    assert await node.tier.uploader.upload_round()
    assert [node.topics.partition("t", index).uploaded_end for index in range(2)] == [1, 1]
    await node.stop()


async def test_an_upload_cancelled_before_it_began_leaves_its_partitions_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    for index in range(2):
        await node.append(node.topics.partition("t", index), "a")
    task = asyncio.TaskGroup.create_task

    def refuse_second(group: asyncio.TaskGroup, work: Any, **options: Any) -> Any:  # Any: as asyncio declares it
        created = task(group, work, **options)
        if len(group._tasks) == 2:
            raise RuntimeError("no more")
        return created

    monkeypatch.setattr(asyncio.TaskGroup, "create_task", refuse_second)
    with pytest.raises(ExceptionGroup):
        await node.tier.uploader.upload_round()
    monkeypatch.undo()
    assert await node.tier.uploader.upload_round()
    assert [node.topics.partition("t", index).uploaded_end for index in range(2)] == [1, 1]
    await node.stop()
