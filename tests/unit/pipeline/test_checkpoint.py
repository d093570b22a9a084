from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.checkpoint import Checkpoint, mend
from headrace.pipeline.source.offsets import Position, TopicPartition

OFFSETS = b'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":5}}'
CHECKSUM = bytes(12)


def checkpoint(root: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    whole = {
        "metadata": b'{"id":"q"}',
        "offsets/9": OFFSETS,
        "offsets/10": OFFSETS,
        "commits/9": b'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/.10.crc": CHECKSUM,
    } | files
    for name, data in whole.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return whole


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("torn", [b"", bytes(80), b"v1", b"v1\n", OFFSETS[:-1], OFFSETS[:20]])
def test_the_newest_offsets_go_where_a_power_cut_tore_them(tmp_path: Path, torn: bytes) -> None:
    whole = checkpoint(tmp_path, {"offsets/10": torn})
    assert mend(str(tmp_path)) == ["offsets/10"]
    assert names(tmp_path) == whole.keys() - {"offsets/10", "offsets/.10.crc"}


def test_a_torn_commit_or_name_goes_and_a_torn_checksum_alone(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, {"commits/10": b"", "metadata": b"", "offsets/.10.crc": b""})
    assert sorted(mend(str(tmp_path))) == ["commits/10", "metadata"]
    assert names(tmp_path) == whole.keys() - {"commits/10", "metadata", "offsets/.10.crc"}


@pytest.mark.parametrize("newest", [OFFSETS, b"v2\nsomething", b'v1\n{"a":1}\n-'])
def test_what_is_whole_or_not_known_stays(tmp_path: Path, newest: bytes) -> None:
    whole = checkpoint(tmp_path, {"offsets/10": newest})
    assert mend(str(tmp_path)) == []
    assert names(tmp_path) == whole.keys()


def test_older_files_and_places_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"offsets/9": b""})
    assert mend(str(tmp_path)) == []
    assert mend(str(tmp_path / "nowhere")) == []
    assert mend("s3a://bucket/checkpoint") == []


def test_where_a_query_was_told_to_begin_is_kept_in_its_checkpoint(tmp_path: Path) -> None:
    spark: Any = None  # not asked where the checkpoint is on a local disk
    checkpoint = Checkpoint(spark, f"file://{tmp_path}/new")
    assert checkpoint.first_position() is None
    position = Position(offsets={TopicPartition("orders", 0): 5}, topic_ids={"orders": "id"})
    checkpoint.keep_first_position(position)
    assert Checkpoint(spark, f"file://{tmp_path}/new").first_position() == position
