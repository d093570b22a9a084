"""Manifest numbers are dense: a gap is named by whoever reads, mended by the node, and holds every deletion."""

from pathlib import Path

import msgspec
import pytest
from tests.support.metastores import ManualClock
from tests.support.tier_node import QUIET, TierNode, read_bucket, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import prefix
from headrace.errors import Corrupted, StoreUnavailable
from headrace.tier import inventory
from headrace.tier.format import keys
from headrace.tier.format.inventory import Inventory
from headrace.tier.inventory import load_inventory
from headrace.tier.restore import release_hold, restore_metastore

SETTINGS = msgspec.structs.replace(QUIET, grace_ms=1000)


async def uploaded_node(directory: Path, *, uploads: int = 5) -> TierNode:
    clock = ManualClock()
    node = TierNode(directory, MemoryBlobStore(clock), SETTINGS, clock=clock, is_running_tier=False)
    await node.start()
    await node.topics.create("t", partitions=2)
    for number in range(uploads):
        for index in range(2):
            await node.append(node.topics.partition("t", index), f"{number}")
        await node.upload()
    return node


async def data_objects(node: TierNode) -> list[str]:
    return [info.key async for info in node.blobs.list(keys.DATA)]


@pytest.mark.parametrize("missing", [1, 3])
async def test_a_missing_manifest_is_named_by_whoever_reads_the_inventory(
    tmp_path: Path, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "PATIENCE_S", 0)
    node = await uploaded_node(tmp_path / "node")
    await node.blobs.delete([keys.manifest_key(missing)])
    with pytest.raises(Corrupted, match=f"manifest {missing} is missing"):
        await load_inventory(node.blobs)
    (tmp_path / "new").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "new" / "metastore.sqlite")
    with pytest.raises(Corrupted, match=f"manifest {missing} is missing"):
        await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    assert (await store.range(prefix(""))).items == ()
    await store.close()
    await node.stop()


@pytest.mark.parametrize("missing", [(1,), (3,), (2, 3), (5,), (1, 2, 3, 4, 5)])
async def test_the_node_mends_a_gap_from_the_metastore(tmp_path: Path, missing: tuple[int, ...]) -> None:
    node = await uploaded_node(tmp_path)
    before = await load_inventory(node.blobs)
    await node.blobs.delete([keys.manifest_key(number) for number in missing])
    assert await node.tier.ledger.ensure_whole()
    assert await load_inventory(node.blobs, patience_s=0) == before
    assert not node.problems.standing()
    await node.append(node.topics.partition("t", 0), "after")
    await node.upload()
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["0", "1", "2", "3", "4", "after"]
    await node.stop()


async def test_a_gap_is_mended_after_a_restart_and_when_merges_are_in_it(tmp_path: Path) -> None:
    node = await uploaded_node(tmp_path)
    await node.tier.compactor.run_once(objects_min=2)
    await node.tier.ledger.write_pending()
    before = await load_inventory(node.blobs)
    await node.blobs.delete([keys.manifest_key(before.number), keys.manifest_key(2)])
    await node.restart()
    assert await node.tier.ledger.ensure_whole()
    assert (await load_inventory(node.blobs, patience_s=0)).partitions == before.partitions
    await node.stop()


async def test_a_damaged_manifest_is_covered_by_a_new_checkpoint(tmp_path: Path) -> None:
    node = await uploaded_node(tmp_path)
    before = await load_inventory(node.blobs)
    await node.blobs.put(keys.manifest_key(3), [b"rotten"])
    await node.tier.ledger.fold_if_sound()
    assert node.tier.ledger.damage is None
    assert await load_inventory(node.blobs, patience_s=0) == before
    await node.stop()


async def test_nothing_is_deleted_while_a_gap_cannot_be_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await uploaded_node(tmp_path)
    await node.tier.compactor.run_once(objects_min=2)
    await node.tier.ledger.write_pending()
    before = await data_objects(node)
    await node.blobs.delete([keys.manifest_key(2)])

    async def fail() -> Inventory:
        raise StoreUnavailable("503")

    monkeypatch.setattr(node.tier.ledger, "_rebuild", fail)
    assert isinstance(node.clock, ManualClock)
    for _ in range(3):
        node.clock.advance(10 * SETTINGS.grace_ms)
        with pytest.raises(StoreUnavailable):
            await node.tier.sweeper.sweep()
    assert await data_objects(node) == before
    assert "manifest 2 is missing" in node.problems.standing()[0]
    monkeypatch.undo()
    for _ in range(3):
        node.clock.advance(10 * SETTINGS.grace_ms)
        await node.tier.sweeper.sweep()
    assert len(await data_objects(node)) < len(before)
    assert values_of(await read_bucket(node.blobs, "t", 0)) == ["0", "1", "2", "3", "4"]
    await node.stop()


async def test_objects_that_no_manifest_names_are_counted_by_a_restore_and_outlive_gc(tmp_path: Path) -> None:
    """The newest manifests are lost: no gap shows it, only the objects do."""
    node = await uploaded_node(tmp_path / "node")
    await node.crash()
    await node.blobs.delete([keys.manifest_key(4), keys.manifest_key(5)])
    before = await data_objects(node)
    (tmp_path / "new").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "new" / "metastore.sqlite")
    restored = await restore_metastore(node.blobs, store, leader="node", clock=node.clock)
    assert restored.unnamed_objects == 2
    await store.close()
    new = TierNode(tmp_path / "new", node.blobs, SETTINGS, clock=node.clock, is_running_tier=False)
    await new.start()
    assert await release_hold(new.metastore)
    assert isinstance(node.clock, ManualClock)
    node.clock.advance(10**9)
    await new.tier.sweeper.sweep()
    assert await new.tier.sweeper.collect_orphans() == 0
    assert await data_objects(new) == before
    await new.stop()
