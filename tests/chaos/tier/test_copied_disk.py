"""A node's directory is copied, and both are started on the same bucket: one goes on, the other is refused and writes nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.node import START_SECONDS_MAX, NodeProcess, eventually
from tests.support.object_stores import BUCKET, moto
from tests.support.outages import PATIENCE_S, Load, consume_all, create_topic, wait_uploaded

pytestmark = pytest.mark.slow


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, object]]:
    if request.param == "local":
        yield {"object_store.local.path": tmp_path / "bucket"}
        return
    with moto() as server:
        yield {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": server.endpoint,
        }


def test_a_copy_beside_the_original_is_refused_and_the_original_loses_nothing(
    tmp_path: Path, store: dict[str, object]
) -> None:
    settings = {"tier.upload.interval.ms": 100, **store}
    original = NodeProcess(tmp_path / "original", settings).start()
    copy = NodeProcess(tmp_path / "copy", settings)
    try:
        create_topic(original, "t", durability="object")
        load = Load(original, "t")
        load.send(50)
        wait_uploaded(original)
        original.stop()
        shutil.copytree(original.data_dir, copy.data_dir)
        original.start()
        load = Load(original, "t", first=50)
        for _ in range(2):
            copy.spawn()
            assert copy.process is not None
            assert copy.process.wait(START_SECONDS_MAX) == 1, copy.log_text()
            load.send(50)
        assert "another life of this cluster" in copy.log_text() or "older copy" in copy.log_text(), copy.log_text()
        assert "Traceback" not in copy.log_text()
        wait_uploaded(original)
        assert len(set(consume_all(original, "t", 150))) == 150
    finally:
        original.kill()
        if copy.process is not None and copy.process.poll() is None:
            copy.kill()


def test_an_original_that_runs_stops_when_a_copy_of_it_goes_on(tmp_path: Path, store: dict[str, object]) -> None:
    """Nothing was committed since the copy was taken: it may be the one to go on, as on a machine that took over."""
    settings = {"tier.upload.interval.ms": 100, **store}
    original = NodeProcess(tmp_path / "original", settings).start()
    copy = NodeProcess(tmp_path / "copy", settings)
    try:
        create_topic(original, "t", durability="object")
        Load(original, "t").send(50)
        wait_uploaded(original)
        shutil.copytree(
            original.data_dir, copy.data_dir, ignore=shutil.ignore_patterns("endpoints.json", "lock", "*.sock")
        )
        copy.start()
        assert original.process is not None
        eventually(lambda: original.process.poll() is not None, PATIENCE_S, "it runs on", original.log_text)  # type: ignore[union-attr]
        assert "another life of this cluster has begun" in original.log_text()
        Load(copy, "t", first=50).send(50)
        assert len(set(consume_all(copy, "t", 100))) == 100
    finally:
        for node in (original, copy):
            if node.process is not None and node.process.poll() is None:
                node.kill()
