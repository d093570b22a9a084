"""How manifests get from the metastore to the bucket, and leave the one when they are in the other."""

from pathlib import Path

import pytest
from tests.support.tier_node import TierNode, read_bucket, values_of

from headrace.errors import Corrupted, StoreUnavailable
from headrace.tier import plans
from headrace.tier.format import keys
from headrace.tier.format.inventory import Inventory


async def make_node(path: Path) -> TierNode:
    """Nobody but the test wakes the ledger."""
    node = await TierNode(path, is_running_tier=False).start()
    await node.topics.create("t", partitions=1)
    await node.tier.ledger.write_pending()
    return node


async def upload(node: TierNode, count: int) -> None:
    for number in range(count):
        await node.append(node.topics.partition("t", 0), str(number))
        assert await node.tier.uploader.upload_round()


async def held(node: TierNode) -> int:
    return len((await node.metastore.range(plans.PENDING_MANIFESTS)).items)


async def written(node: TierNode) -> int:
    return len([info async for info in node.blobs.list(keys.MANIFESTS)])


async def test_manifests_go_to_the_bucket_one_by_one_and_leave_the_metastore_together(tmp_path: Path) -> None:
    node = await make_node(tmp_path)
    before = await written(node)
    for number in range(1, 16):
        await upload(node, 1)
        commits = node.metastore.commit_count
        await node.tier.ledger._write_awaited()
        assert (await written(node) - before, await held(node)) == (number, number)
        assert node.metastore.commit_count == commits
        assert node.tier.metrics.tier_manifests_pending == 0
    await upload(node, 1)
    await node.tier.ledger._write_awaited()
    assert (await written(node) - before, await held(node)) == (16, 0)
    await node.stop()


async def test_what_a_crash_leaves_in_the_metastore_is_found_in_the_bucket(tmp_path: Path) -> None:
    node = await make_node(tmp_path)
    await upload(node, 3)
    await node.tier.ledger._write_awaited()
    await upload(node, 2)
    before = await written(node)
    await node.crash()
    await node.start()
    assert (await written(node), await held(node)) == (before + 2, 0)
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["0", "1", "2", "0", "1"]
    await node.stop()


async def test_a_manifest_that_the_store_refuses_is_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await make_node(tmp_path)
    await upload(node, 2)
    before = await written(node)

    async def refuse(key: str, chunks: object) -> None:
        raise StoreUnavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr(node.blobs, "put_if_absent", refuse)
        with pytest.raises(StoreUnavailable):
            await node.tier.ledger._write_awaited()
        assert node.tier.metrics.tier_manifests_pending == 2
    await node.tier.ledger._write_awaited()
    assert (await written(node) - before, node.tier.metrics.tier_manifests_pending) == (2, 0)
    await node.stop()


async def test_a_manifest_that_somebody_else_has_written_is_awaited_no_more(tmp_path: Path) -> None:
    node = await make_node(tmp_path)
    node.tier.ledger.wake(4711)
    assert node.tier.metrics.tier_manifests_pending == 1
    await node.tier.ledger._write_awaited()
    assert node.tier.metrics.tier_manifests_pending == 0
    await node.stop()


async def test_a_damaged_manifest_stops_the_fold_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be mended, either."""
    node = await make_node(tmp_path)

    async def fail() -> Inventory:
        raise Corrupted("an object it needs is damaged, too")

    monkeypatch.setattr(node.tier.ledger, "_rebuild", fail)
    await upload(node, 3)
    await node.tier.ledger.write_pending()
    key = keys.manifest_key(2)
    right = bytes(await node.blobs.get(key))
    await node.blobs.put(key, [right[: len(right) // 2]])
    await node.tier.ledger.fold_if_sound()
    assert node.tier.ledger.damage is not None
    assert node.faults == []
    await upload(node, 1)
    await node.blobs.put(key, [right])
    await node.tier.ledger.fold_if_sound()
    assert node.tier.ledger.damage is None
    await node.stop()
