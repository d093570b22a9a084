"""Damaged records that an operator gives up: consumers pass them, everything else stays, and it is on record."""

from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_bucket, read_tier, records_of, values_of

from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import DamagedRecords, Invalid
from headrace.log.partition import PartitionLog
from headrace.node.metastore import METASTORE_FILE
from headrace.records.batch import bytes_of, iterate_batches
from headrace.tier.inventory import load_inventory
from headrace.tier.restore import restore_metastore
from headrace.tier.skipping import all_skipped
from headrace.tier.verify import verify


async def damaged(directory: Path, how: str = "three") -> tuple[TierNode, PartitionLog]:
    """Six records in one object; one of them is changed, or the object is lost."""
    node = await TierNode(directory, is_running_tier=False).start()
    partition = (await node.topics.create("t", partitions=1)).partitions[0]
    for value in ("one", "two", "three", "four", "five", "six"):
        await node.append(partition, value)
    await node.upload()
    (info,) = [info async for info in node.blobs.list("data/")]
    data = bytes(await node.blobs.get(info.key))
    if how == "lost":
        await node.blobs.delete([info.key])
    else:
        await node.blobs.put(info.key, [data.replace(how.encode(), how.upper().encode())])
    node.tier._cache.forget(info.key)
    with pytest.raises(DamagedRecords):
        await read_tier(node, partition)
    return node, partition


async def reach(node: TierNode, partition: PartitionLog) -> int:
    """Where a consumer comes to that takes whole batches and goes on behind the last one."""
    offset = 0
    while offset < partition.high_watermark:
        buffers = await node.tier.reader.read(partition.topic_id, 0, offset=offset, end_offset=99, max_bytes=1 << 20)
        ends = [header.end_offset for buffer in buffers for header, _ in iterate_batches(bytes_of(buffer))]
        if not ends:
            return offset
        offset = ends[-1]
    return offset


@pytest.mark.parametrize(
    ("how", "offset", "kept"),
    [
        ("three", 2, ["one", "two", "four", "five", "six"]),
        ("one", 0, ["two", "three", "four", "five", "six"]),
        ("six", 5, ["one", "two", "three", "four", "five"]),
        ("lost", 3, []),
    ],
)
async def test_consumers_pass_what_is_skipped_and_get_the_rest(
    tmp_path: Path, how: str, offset: int, kept: list[str]
) -> None:
    node, partition = await damaged(tmp_path, how)
    await node.tier.skipper.skip(partition, offset, by="somebody")
    assert await reach(node, partition) == 6
    buffers = await node.tier.reader.read(partition.topic_id, 0, offset=0, end_offset=6, max_bytes=1 << 20)
    assert values_of(records_of([bytes_of(each) for each in buffers])) == kept
    node.tier.forget_mended()
    assert node.problems.standing() == ()
    assert (await node.append(partition, "seven")).base_offset == 6
    await node.stop()


async def test_the_bucket_agrees_and_a_restore_too(tmp_path: Path) -> None:
    node, partition = await damaged(tmp_path / "first", "six")
    await node.tier.skipper.skip(partition, 5, by="somebody")
    await node.tier.ledger.write_pending()
    await node.save_state()
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["one", "two", "three", "four", "five"]
    assert (await verify(node.blobs, await load_inventory(node.blobs))).findings == ()
    await node.stop()
    (tmp_path / "second").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "second" / METASTORE_FILE)
    await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    (skipped,) = await all_skipped(store)
    assert (skipped.topic, skipped.partition, skipped.base_offset, skipped.end_offset) == ("t", 0, 5, 6)
    assert skipped.by == "somebody"
    await store.close()
    again = await TierNode(tmp_path / "second", node.blobs, is_running_tier=False).start()
    assert again.topics.partition("t", 0).uploaded_end == 6
    await again.stop()


async def test_what_can_be_read_is_not_skipped(tmp_path: Path) -> None:
    node, partition = await damaged(tmp_path)
    with pytest.raises(Invalid, match=r"t-0: offset 4 can be read; damaged offsets of its segment: 2 to 2"):
        await node.tier.skipper.skip(partition, 4, by="somebody")
    with pytest.raises(Invalid, match="offset 99 is not in object storage"):
        await node.tier.skipper.skip(partition, 99, by="somebody")
    assert await all_skipped(node.metastore) == []
    await node.stop()
