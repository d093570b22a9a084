"""How manifests get from the metastore to the bucket, and leave the one when they are in the other."""

from pathlib import Path

import pytest
from tests.support.metastores import ManualClock
from tests.support.tier_node import TierNode, read_bucket, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.errors import Corrupted, NotReady, StoreUnavailable
from headrace.telemetry.problems import Problems
from headrace.tier import ledger, plans
from headrace.tier.format import keys
from headrace.tier.format.inventory import Inventory
from headrace.tier.inventory import load_inventory
from headrace.tier.keeping import Keeping
from headrace.tier.ledger import Ledger
from headrace.tier.metrics import TierMetrics


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


# -- one of several brokers ------------------------------------------------------------------------------------------


async def shared_bucket(path: Path) -> tuple[TierNode, ManualClock]:
    """A broker that commits, seen by others through the metastore and the bucket."""
    clock = ManualClock()
    node = TierNode(path, MemoryBlobStore(clock), clock=clock, is_running_tier=False)
    await node.start()
    await node.topics.create("t", partitions=1)
    return node, clock


def keeper_beside(node: TierNode) -> Ledger:
    """Of another broker, which leads nothing and has written nothing."""

    async def rebuild() -> Inventory:
        raise NotReady("it has no log")

    return Ledger(
        node.blobs,
        node.metastore,
        clock=node.clock,
        metrics=TierMetrics(),
        problems=Problems(),
        rebuild=rebuild,
        keeping=Keeping(is_alone=False, is_keeper=lambda: True),
    )


async def checkpoints(node: TierNode) -> list[int]:
    return [keys.number_of(info.key) async for info in node.blobs.list(keys.CHECKPOINTS)]


async def look(keeper: Ledger, clock: ManualClock) -> None:
    """What `run` does once it wakes up."""
    clock.advance(int(ledger._LOOK_AGAIN_S * 1000))
    await keeper.look_after_others()
    if keeper._is_fold_due():
        await keeper.fold_if_sound()


async def test_a_keeper_that_leads_nothing_folds_what_others_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FOLD_AFTER", 16)
    node, clock = await shared_bucket(tmp_path)
    keeper = keeper_beside(node)
    await keeper.load()
    for folds in range(1, 3):
        await upload(node, 40)
        await node.tier.ledger._write_awaited()
        await look(keeper, clock)
        assert len(await checkpoints(node)) == folds
    assert await written(node) == (await checkpoints(node))[-1]
    assert len(values_of(await read_bucket(node.blobs, "t", 0))) == 80
    await node.stop()


async def test_a_keeper_writes_what_another_broker_left_behind(tmp_path: Path) -> None:
    node, clock = await shared_bucket(tmp_path)
    keeper = keeper_beside(node)
    await upload(node, 3)
    before = await written(node)
    await look(keeper, clock)
    assert (await written(node) - before, await held(node)) == (3, 0)
    await node.stop()


async def test_a_new_keeper_goes_on_from_the_checkpoint_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FOLD_AFTER", 16)
    node, clock = await shared_bucket(tmp_path)
    older, newer = keeper_beside(node), keeper_beside(node)
    await newer.load()
    await upload(node, 20)
    await look(older, clock)
    (folded,) = await checkpoints(node)
    await upload(node, 1)
    await look(newer, clock)
    assert await checkpoints(node) == [folded]
    await node.stop()


async def test_whoever_does_not_keep_house_counts_and_folds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FOLD_AFTER", 16)
    node, clock = await shared_bucket(tmp_path)
    beside = keeper_beside(node)
    beside._keeping.is_keeper = lambda: False
    await upload(node, 20)
    await look(beside, clock)
    assert (await checkpoints(node), await held(node)) == ([], 20)
    await node.stop()


async def test_a_checkpoint_made_from_the_metastore_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit while it is made. A segment above its number would be told twice: there, and by its manifest."""
    node, _ = await shared_bucket(tmp_path)
    await upload(node, 3)
    await node.tier.ledger.write_pending()
    original = node.blobs.get_range

    async def get_range(key: str, position: int, length: int) -> object:
        await upload(node, 1)
        return await original(key, position, length)

    await node.blobs.delete([keys.manifest_key(2)])
    monkeypatch.setattr(node.blobs, "get_range", get_range)
    await node.tier.ledger.mend()
    monkeypatch.undo()
    await node.tier.ledger.write_pending()
    found = await load_inventory(node.blobs, patience_s=0)
    assert len(next(iter(found.partitions.values())).segments) == await written(node) + 1
    await node.stop()


async def test_what_is_led_elsewhere_is_not_described_from_here(tmp_path: Path) -> None:
    """This broker does not know which of its transactions were aborted."""
    node, _ = await shared_bucket(tmp_path)
    await upload(node, 3)
    await node.tier.ledger.write_pending()
    await node.blobs.delete([keys.manifest_key(2)])
    partition = node.topics.partition("t", 0)
    partition.removed = True
    with pytest.raises(NotReady, match="not open here"):
        await node.tier.ledger.mend()
    partition.removed = False
    await node.stop()
