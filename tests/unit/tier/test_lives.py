"""One life at a time writes to a bucket: copies of a disk are refused or stopped, and their objects never share a name."""

import shutil
from pathlib import Path

import pytest
from tests.support.metastores import ManualClock
from tests.support.tier_node import QUIET, TierNode, read_bucket, values_of

from headrace.blob.local import LocalBlobStore
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import BlobStore
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Corrupted, Fault, Invalid, NewerFormat
from headrace.ids import BrokerEpoch, BrokerId
from headrace.node.metastore import METASTORE_FILE
from headrace.tier.format import keys
from headrace.tier.format.headed import with_head
from headrace.tier.format.life import Life, decode_life, encode_life
from headrace.tier.restore import restore_metastore


@pytest.fixture(params=["memory", "local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobStore(ManualClock()) if request.param == "memory" else LocalBlobStore(tmp_path / "bucket")


def make_node(directory: Path, blobs: BlobStore) -> TierNode:
    return TierNode(directory, blobs, QUIET, clock=ManualClock(), is_running_tier=False)


async def stopped_node_with_a_record(directory: Path, blobs: BlobStore) -> TierNode:
    node = await make_node(directory, blobs).start()
    await node.topics.create("t", partitions=1)
    await node.append(node.topics.partition("t", 0), "before")
    await node.upload()
    await node.stop()
    return node


async def objects(blobs: BlobStore) -> dict[str, bytes]:
    return {info.key: bytes(await blobs.get(info.key)) async for info in blobs.list("")}


async def test_a_copy_of_the_disk_is_refused_each_time_it_starts_and_changes_nothing(
    tmp_path: Path, blobs: BlobStore
) -> None:
    original = await stopped_node_with_a_record(tmp_path / "original", blobs)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    await original.start()
    before = await objects(blobs)
    for _ in range(2):
        copy = make_node(tmp_path / "copy", blobs)
        with pytest.raises(Fault, match="another life") as refusal:
            await copy.start()
        assert original.tier.lives.life in str(refusal.value)
        await copy.metastore.close()
    assert await objects(blobs) == before
    await original.append(original.topics.partition("t", 0), "after")
    await original.upload()
    assert values_of(await read_bucket(blobs, "t", 0)) == ["before", "after"]
    await original.stop()


async def test_the_original_is_refused_once_a_copy_has_gone_on(tmp_path: Path, blobs: BlobStore) -> None:
    original = await stopped_node_with_a_record(tmp_path / "original", blobs)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = await make_node(tmp_path / "copy", blobs).start()
    with pytest.raises(Fault, match=copy.tier.lives.life):
        await original.start()
    await original.metastore.close()
    await copy.stop()


async def test_a_life_that_was_overtaken_commits_nothing_more(tmp_path: Path, blobs: BlobStore) -> None:
    """A copy taken while the node ran has a later epoch, and a life file behind the node's own."""
    original = await stopped_node_with_a_record(tmp_path / "original", blobs)
    await original.start()
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = await make_node(tmp_path / "copy", blobs).start()
    await original.append(original.topics.partition("t", 0), "too late")
    assert isinstance(original.clock, ManualClock)
    original.clock.advance(10_000)
    with pytest.raises(ExceptionGroup) as raised:
        await original.tier.uploader.upload_round()
    assert raised.group_contains(Fault, match=copy.tier.lives.life)
    await copy.append(copy.topics.partition("t", 0), "gone on")
    await copy.upload()
    assert values_of(await read_bucket(blobs, "t", 0)) == ["before", "gone on"]
    await original.crash()
    await copy.stop()


async def test_lives_that_know_nothing_of_each_other_write_to_other_names(
    tmp_path: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped_node_with_a_record(tmp_path / "original", blobs)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    names: list[str] = []
    for directory in ("original", "copy"):
        node = await make_node(tmp_path / directory, MemoryBlobStore(ManualClock())).start()
        names.append((await node.tier.commits.new_object()).key)
        await node.stop()
    first, second = (keys.object_id_of(name) for name in names)
    assert first._replace(life="") == second._replace(life="")
    assert names[0] != names[1]


async def test_a_life_file_whose_reply_was_lost_is_known_to_be_ours(tmp_path: Path, blobs: BlobStore) -> None:
    node = await stopped_node_with_a_record(tmp_path / "node", blobs)
    before = node.tier.lives.life
    # The process dies right after its file was written: its next life finds it.
    await node.start()
    await node.crash()
    await node.start()
    assert node.tier.lives.life != before
    assert len([info async for info in blobs.list(keys.LIVES)]) == 3
    await node.stop()


async def test_a_restored_metastore_takes_over_and_the_old_life_is_stopped(tmp_path: Path, blobs: BlobStore) -> None:
    original = await stopped_node_with_a_record(tmp_path / "original", blobs)
    await original.start()
    (tmp_path / "new").mkdir()
    store = await EmbeddedMetastore.open(tmp_path / "new" / METASTORE_FILE)
    await restore_metastore(blobs, store, leader="node", clock=ManualClock())
    await store.close()
    restored = await make_node(tmp_path / "new", blobs).start()
    with pytest.raises(Fault, match=restored.tier.lives.life):
        await original.tier.lives.look_now()
    await original.crash()
    await restored.stop()


async def test_orphans_of_another_life_are_left_alone(tmp_path: Path, blobs: BlobStore) -> None:
    node = await stopped_node_with_a_record(tmp_path / "node", blobs)
    foreign = keys.data_key(keys.ObjectId(BrokerId(1), BrokerEpoch(1), 77, "0123456789abcdef"))
    await blobs.put(foreign, [b"records that somebody else has acknowledged"])
    await node.start()
    assert isinstance(node.clock, ManualClock)
    node.clock.time_ms = 1 << 42
    assert await node.tier.sweeper.collect_orphans() == 0
    assert await blobs.get(foreign)
    await node.stop()


def test_names_of_both_versions_are_read() -> None:
    for life in ("", "0123456789abcdef"):
        object_id = keys.ObjectId(BrokerId(3), BrokerEpoch(17), 255, life)
        assert keys.object_id_of(keys.data_key(object_id)) == object_id
    for wrong in ("0123", "0123456789abcdeg", "0123456789abcdef-1"):
        with pytest.raises(Invalid):
            keys.object_id_of(keys.data_key(keys.ObjectId(BrokerId(3), BrokerEpoch(17), 255, wrong)))


LIFE = Life(life="0123456789abcdef", cluster_id="c", broker_id="b", broker_epoch=7, host="h", started_ms=1)


def test_a_life_file_is_read_back_and_damage_is_noticed_at_every_length() -> None:
    data = encode_life(LIFE)
    assert decode_life(data) == LIFE
    for length in range(len(data) - 1):
        with pytest.raises(Corrupted):
            decode_life(data[:length])
    with pytest.raises(Corrupted):
        decode_life(data.replace(b'"b"', b'"x"'))
    for other in (b"life 0", b"life 2", b"life 9"):
        with pytest.raises(Corrupted):
            decode_life(data.replace(b"life 1", other))
    with pytest.raises(NewerFormat, match="version 2"):
        decode_life(with_head("life", 2, b"{}"))


def test_golden_life_file_is_read_and_written() -> None:
    golden = Path(__file__).parents[2] / "golden" / "tier" / "life-v1.life"
    assert decode_life(golden.read_bytes()) == LIFE
    assert encode_life(LIFE) == golden.read_bytes()
