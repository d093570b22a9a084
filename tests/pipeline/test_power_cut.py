"""A power cut under a local warehouse: what a disk holds that was never told to flush anything else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.support.bucket import LocalBucket, records
from tests.support.disk_image import DiskImage, missing_for_mounts
from tests.support.spark import ONE_CORE

from headrace.pipeline.failpoints import VARIABLE
from headrace.pipeline.settings import load_config
from headrace.pipeline.tables.catalog import open_catalog

ROWS = 300


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskImage]:
    reason = missing_for_mounts()
    if reason is not None:
        pytest.skip(reason)
    disk = DiskImage(tmp_path)
    try:
        yield disk
    finally:
        disk.unmount()


def configure(bucket: LocalBucket, directory: Path) -> Path:
    directory.mkdir()
    path = directory / "headrace.yml"
    document = {
        "source": {"bucket": bucket.url},
        "spark": msgspec.to_builtins(ONE_CORE),
        "pipelines": {"bronze": {"kind": "bronze", "subscribe": "orders", "maxOffsetsPerTrigger": 100}},
    }
    path.write_text(yaml.safe_dump(document))
    os.sync()
    return path


def run(config: Path, failpoint: str = "") -> int:
    command = [sys.executable, "-m", "tests.support.pipeline_worker", str(config), "bronze"]
    return subprocess.run(command, env={**os.environ, VARIABLE: failpoint}, check=False, cwd="/").returncode


def flush_checkpoint(config: Path) -> None:
    """The case that must not be: the checkpoint is on the disk before anything else is."""
    for path in (config.parent / "checkpoints").rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def landed(config: Path) -> list[int]:
    catalog = open_catalog(load_config(config).warehouse)
    try:
        rows = catalog.load_table("bronze.records").scan(selected_fields=("offset",)).to_arrow()
    finally:
        catalog.close()
    return sorted(rows.column("offset").to_pylist())


@pytest.mark.slow
def test_a_power_cut_loses_no_commit_that_the_checkpoint_has_passed(
    disk: DiskImage, bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(ROWS))
    config = configure(bucket, disk.mount_point / "node")
    assert run(config) == 0
    flush_checkpoint(config)
    disk.snapshot()
    disk.power_on()
    assert landed(config) == list(range(ROWS))

    bucket.append("orders", 0, records(ROWS, start=ROWS))
    assert run(config, "after batch:2") == -signal.SIGKILL
    disk.snapshot()
    disk.power_on()
    assert run(config) == 0
    assert landed(config) == list(range(2 * ROWS))
