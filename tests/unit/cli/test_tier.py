"""`headrace tier` on the directory of a stopped node."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.tier_node import MIB, TierNode

from headrace.blob.local import LocalBlobStore
from headrace.cli.main import main
from headrace.tier import inventory
from headrace.tier.format import keys

WAL_BYTES = 64 * MIB


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A node that has uploaded twelve small objects of two partitions and was stopped."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "broker.id").write_text("node\n")

    async def fill() -> None:
        node = await TierNode(directory, LocalBlobStore(directory / "objects"), wal_bytes=WAL_BYTES).start()
        topic = await node.topics.create("orders", partitions=2)
        for number in range(12):
            for partition in topic.partitions:
                await node.append(partition, f"{number}")
            await node.upload()
        await node.stop()
        await node.blobs.close()

    asyncio.run(fill())
    return directory


def run(data_dir: Path, *arguments: str) -> int:
    try:
        main(["tier", *arguments, "--data-dir", str(data_dir), "--set", f"wal.capacity.bytes={WAL_BYTES}"])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_directory_without_a_log_is_named_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nowhere", "ls") == 1
    assert f"no log in object store local {tmp_path / 'nowhere' / 'objects'}" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", ["gc", "compact"])
def test_housekeeping_makes_no_directory_that_was_mistyped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(tmp_path / "nowhere", command) == 1
    assert f"no node has kept its data in {tmp_path / 'nowhere'}" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_ls_needs_no_right_to_write(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise AssertionError("a command that looks has written")

    for verb in ("put", "put_if_absent", "delete"):
        monkeypatch.setattr(LocalBlobStore, verb, refuse)
    assert run(data_dir, "ls") == 0


def test_ls_shows_partitions_and_segments(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data_dir, "ls", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["topic"], row["partition"], row["end_offset"], row["segments"]) for row in rows] == [
        ("orders", 0, 12, 12),
        ("orders", 1, 12, 12),
    ]
    assert run(data_dir, "ls", "orders") == 0
    assert capsys.readouterr().out.count(".hro") == 24
    assert run(data_dir, "ls", "nothing") == 1


def test_verify_passes_then_names_the_damage(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data_dir, "verify", "--json") == 0
    assert json.loads(capsys.readouterr().out)["record_count"] == 24
    damaged = min((data_dir / "objects" / "data").rglob("*.hro"))
    content = bytearray(damaged.read_bytes())
    content[70] ^= 1
    damaged.write_bytes(content)
    assert run(data_dir, "verify") == 1
    shown = capsys.readouterr()
    assert damaged.name in shown.out
    assert "1 of 24 segments are damaged" in shown.err


@pytest.mark.requirement("X3.4")
def test_compact_and_gc_by_hand(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data_dir, "compact") == 0
    assert "26 segments merged" in capsys.readouterr().out
    assert run(data_dir, "gc", "--set", "tier.grace.ms=0") == 0
    assert run(data_dir, "gc", "--set", "tier.grace.ms=0") == 0
    capsys.readouterr()
    assert len(list((data_dir / "objects" / "data").rglob("*.hro"))) <= 2
    assert run(data_dir, "verify", "--json") == 0
    assert json.loads(capsys.readouterr().out)["record_count"] == 24


def test_restore_rebuilds_a_lost_metastore_and_holds_collection(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in data_dir.glob("metastore.sqlite*"):
        file.unlink()
    assert run(data_dir, "restore") == 0
    assert run(data_dir, "restore") == 1
    assert f"if {data_dir / 'metastore.sqlite'} is not the one that counts" in capsys.readouterr().err
    assert run(data_dir, "verify") == 0
    assert "is released" in capsys.readouterr().err
    assert run(data_dir, "compact") == 0
    assert "26 segments merged" in capsys.readouterr().out


def test_skip_gives_up_a_lost_object_and_keeps_on_record_who_did_it(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(data_dir, "skip", "orders", "0", "3") == 1
    assert "orders-0: offset 3 can be read" in capsys.readouterr().err
    objects = sorted((data_dir / "objects" / "data").rglob("*.hro"), key=lambda path: path.name)
    objects[3].unlink()
    assert run(data_dir, "verify") == 1
    capsys.readouterr()
    for partition in ("0", "1"):
        assert run(data_dir, "skip", "orders", partition, "3", "--json") == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["base_offset"], row["end_offset"]) == (3, 4)
    assert run(data_dir, "skipped", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["partition"] for row in rows] == [0, 1]
    assert all("@" in row["by"] for row in rows)
    assert run(data_dir, "verify") == 0
    assert run(data_dir, "skip", "nothing", "0", "0") == 1
    assert "there is no partition 0 of a topic 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_missing_manifest_is_named_and_nothing_passes_for_the_whole_log(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(inventory, "PATIENCE_S", 0)
    (data_dir / "objects" / keys.manifest_key(7)).unlink()
    assert run(data_dir, command) == 1
    shown = capsys.readouterr()
    assert "manifest 7 is missing" in shown.err
    assert "orders" not in shown.out


def test_gc_mends_a_gap_and_deletes_no_object_that_is_needed(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = sorted((data_dir / "objects" / "data").glob("*/*"))
    (data_dir / "objects" / keys.manifest_key(7)).unlink()
    assert run(data_dir, "gc", "--set", "tier.grace.ms=0") == 0
    assert sorted((data_dir / "objects" / "data").glob("*/*")) == objects
    capsys.readouterr()
    assert run(data_dir, "verify", "--json") == 0
    assert json.loads(capsys.readouterr().out)["record_count"] == 24
