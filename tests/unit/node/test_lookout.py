"""What `/health` tells of a node that runs: each problem is there when it should be, and goes when it is over."""

import asyncio
from pathlib import Path

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock
from tests.support.tier_node import MIB, TierNode

from headrace.control.metastore import Delete, Put, only
from headrace.errors import DamagedRecords
from headrace.log.spill.spiller import Spiller
from headrace.node.lookout import STUCK_MS, Lookout
from headrace.tier.plans import HOLD


class Watched:
    """A node without doors, and somebody who looks at it."""

    def __init__(self, node: TierNode) -> None:
        self.node = node
        self.is_store_down = False
        self.lookout = Lookout(
            node.problems,
            logs=node.logs,
            tier=node.tier,
            store=node.metastore,
            clock=node.clock,
            upload_interval_ms=0,
            is_store_down=lambda: self.is_store_down,
        )

    async def told(self) -> tuple[str, ...]:
        await self.lookout.look()
        return self.node.problems.standing()


async def started(directory: Path, **changes: object) -> Watched:
    return Watched(await TierNode(directory, is_running_tier=False, **changes).start())  # type: ignore[arg-type]


async def test_a_held_metastore_is_told_until_it_is_released(tmp_path: Path) -> None:
    watched = await started(tmp_path)
    assert await watched.told() == ()
    await watched.node.metastore.txn((), (Put(HOLD, b"restored"),))
    (told,) = await watched.told()
    assert told.startswith(
        "the metastore was restored from the bucket: nothing is collected until `headrace tier verify`"
    )
    await watched.node.metastore.txn((), (Delete(only(HOLD)),))
    assert await watched.told() == ()
    await watched.node.stop()


async def test_uploads_that_do_not_get_on_are_told(tmp_path: Path) -> None:
    clock = ManualClock()
    watched = await started(tmp_path, clock=clock)
    partition = (await watched.node.topics.create("t", partitions=1)).partitions[0]
    await watched.node.append(partition, "from long ago", at_ms=1)
    assert await watched.told() == ()
    clock.advance(STUCK_MS + 1000)
    assert await watched.told() == ("uploads of 1 partitions do not get on: t-0 waits at offset 0 for 61 s",)
    await watched.node.upload()
    assert await watched.told() == ()
    await watched.node.stop()


async def test_a_store_that_is_down_is_told(tmp_path: Path) -> None:
    watched = await started(tmp_path)
    watched.is_store_down = True
    assert await watched.told() == ("the object store is down: records stay on this disk",)
    watched.is_store_down = False
    assert await watched.told() == ()
    await watched.node.stop()


async def test_producers_that_wait_for_room_are_told_when_they_wait_for_long(tmp_path: Path) -> None:
    watched = await started(tmp_path, wal_bytes=4 * MIB)
    node = watched.node
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    while node.logs.can_take(200_000):
        await node.append(partition, "x" * 200_000)
    node.logs.when_room(lambda: None)
    assert await watched.told() == ()
    assert await watched.told() == ("producers are paused: the WAL is full of records that are not uploaded",)
    node.logs.room_changed()
    await turn_of_the_loop()
    assert await watched.told() == ()
    await node.stop()


async def test_damage_of_an_object_that_nobody_refers_to_any_more_is_over(tmp_path: Path) -> None:
    watched = await started(tmp_path)
    node = watched.node
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a")
    await node.upload()
    await node.blobs.delete([info.key async for info in node.blobs.list("data/")])
    with pytest.raises(DamagedRecords):
        await node.tier.reader.read(topic.id, 0, offset=0, end_offset=1, max_bytes=1)
    assert len(await watched.told()) == 1
    await node.topics.delete("t")
    node.tier.forget_topic(topic.id)
    assert await watched.told() == ()
    await node.stop()


async def test_a_range_that_rotted_in_the_wal_is_told(tmp_path: Path) -> None:
    watched = await started(tmp_path)
    partition = (await watched.node.topics.create("t", partitions=1)).partitions[0]
    for value in ("first", "second", "third"):
        await watched.node.append(partition, value)
    await watched.node.crash()
    ring = tmp_path / "wal" / "ring"
    ring.write_bytes(ring.read_bytes().replace(b"second", b"sEcond"))
    watched = await started(tmp_path)
    watched.lookout.note_recovery()
    (told,) = await watched.told()
    assert told.startswith("the disk has damaged 1 ranges of the WAL that were durable; their records are lost: LSN ")
    await watched.node.stop()


async def test_a_spill_file_that_is_missing_is_told(tmp_path: Path) -> None:
    watched = await started(tmp_path, spill_bytes=1 << 30)
    node = watched.node
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    for value in ("uploaded", "spilled", "in the ring"):
        await node.append(partition, value)
        if value == "uploaded":
            await node.upload()
        elif value == "spilled":
            spiller = Spiller(node.logs)
            while await spiller.spill(node.logs.wal.durable_lsn):
                pass
    await node.logs.trim()
    await node.crash()
    watched = await started(tmp_path, spill_bytes=1 << 30)
    watched.lookout.note_recovery()
    assert await watched.told() == ()
    await watched.node.crash()
    (spill,) = (tmp_path / "wal").glob("spill-*")
    await asyncio.to_thread(spill.unlink)
    watched = await started(tmp_path, spill_bytes=1 << 30)
    watched.lookout.note_recovery()
    (told,) = await watched.told()
    assert told.endswith("is missing: t-0 1 to 1")
    await watched.node.stop()
