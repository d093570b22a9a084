from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.spark import spark_session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All on one worker: a session costs ten seconds and a gigabyte."""
    for item in items:
        if "tests/pipeline/" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture
def bucket(tmp_path: Path) -> LocalBucket:
    return LocalBucket(tmp_path / "objects")
