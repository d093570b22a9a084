from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.metastores import ManualClock
from tests.support.spark import spark_session

from headrace.clock import SystemClock
from headrace.pipeline import queries

SECONDS_MAX = 900
"""Half a minute each; where many others want the same two cores, Spark takes ten times as long."""


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups, and before modules are made groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All on one worker: a session costs ten seconds and a gigabyte."""
    for item in items:
        if "tests/pipeline/" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture
def landing_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Stands still, so that everything lands in one hour's partition, however long it takes and whenever it begins."""
    clock = ManualClock(SystemClock().now_ms())
    monkeypatch.setattr(queries, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def bucket(tmp_path: Path) -> LocalBucket:
    return LocalBucket(tmp_path / "objects")
