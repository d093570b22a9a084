"""`headrace sql` with its brokers stopped: the bucket answers for them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec import structs
from tests.support.listener import Listener, as_kafka
from tests.support.ports import kept_port

from headrace.cli.commands.sql import _reachable
from headrace.errors import Unavailable
from headrace.pipeline.settings import PipelineConfig, SourceSettings, SparkSettings

QUERY = "select count(*) from `topic.orders`"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with kept_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def somebody() -> Iterator[str]:
    with closing(Listener(as_kafka)) as listener:
        yield listener.address


def reading(bootstrap: str, bucket: str = "data/objects") -> PipelineConfig:
    return PipelineConfig(source=SourceSettings(bootstrap_servers=bootstrap, bucket=bucket))


def test_topics_are_read_from_the_bucket_alone_when_no_broker_is_there(
    nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _reachable(reading(nobody), QUERY)
    assert found.source.bootstrap_servers == ""
    assert found.source.bucket == "data/objects"
    told = f"no node at {nobody}: Connection refused; topics are read as far as the bucket goes\n"
    assert capsys.readouterr().err == told


def test_one_broker_of_several_is_enough(nobody: str, somebody: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = reading(f"{nobody},{somebody}")
    assert _reachable(config, QUERY) == config
    assert capsys.readouterr().err == ""


def test_without_a_bucket_a_missing_broker_is_an_error(nobody: str) -> None:
    with pytest.raises(Unavailable, match=f"no node at {nobody}"):
        _reachable(reading(nobody, bucket=""), QUERY)


def test_a_query_of_tables_alone_asks_no_broker(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = reading(nobody)
    assert _reachable(config, "select * from `bronze.records`") == config
    assert capsys.readouterr().err == ""


def test_a_spark_elsewhere_finds_brokers_by_itself(nobody: str) -> None:
    config = structs.replace(reading(nobody), spark=SparkSettings(master="spark://far:7077"))
    assert _reachable(config, QUERY) == config
