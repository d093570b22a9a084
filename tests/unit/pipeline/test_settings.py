from pathlib import Path

import pytest

from headrace.errors import AlreadyExists, Invalid
from headrace.pipeline.main import config_beside_node
from headrace.pipeline.settings import (
    BronzeSettings,
    PipelineConfig,
    SilverSettings,
    SourceSettings,
    load_config,
    parse_config,
)
from headrace.pipeline.template import write_template


def test_the_template_is_a_configuration_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yml"
    write_template(path, PipelineConfig(source=SourceSettings(bootstrap_servers="h:1", bucket="objects")))
    config = load_config(path)
    assert list(config.pipelines) == ["bronze", "logjam_minute"]
    assert isinstance(config.pipeline("bronze"), BronzeSettings)
    assert config.source.options() == {"kafka.bootstrap.servers": "h:1", "bucket": str(tmp_path / "objects")}
    assert config.checkpoint("bronze") == str(tmp_path / "checkpoints" / "bronze")
    with pytest.raises(AlreadyExists):
        write_template(path, config)


def test_beside_a_node_rows_wait_for_a_batch_no_longer_than_half_of_ten_seconds(tmp_path: Path) -> None:
    for _ in range(2):
        config = config_beside_node(tmp_path, bootstrap_servers="h:1", bucket="/objects")
        assert config.pipeline("bronze").trigger_seconds <= 5
        assert config.source.options() == {"kafka.bootstrap.servers": "h:1", "bucket": "/objects"}
        assert config.warehouse.path == str(tmp_path / "pipeline" / "warehouse")


def test_urls_are_left_alone(tmp_path: Path) -> None:
    config = parse_config({"source": {"bucket": "s3://b/p"}, "checkpoints": "s3a://b/c"}, base=tmp_path)
    assert config.source.bucket == "s3://b/p"
    assert config.checkpoint("x") == "s3a://b/c/x"


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"sauce": {}}, "sauce"),
        ({"pipelines": {"p": {"kind": "gold", "subscribe": "a"}}}, "gold"),
        ({"pipelines": {"p": {"kind": "bronze"}}}, "pipelines.p: a pipeline needs exactly one of subscribe"),
        ({"pipelines": {"P p": {"kind": "bronze", "subscribe": "a"}}}, "pipelines"),
        ({"pipelines": {"p": {"kind": "bronze", "subscribe": "a", "trigger_seconds": -1}}}, "trigger_seconds"),
        ({"pipelines": {"p": {"kind": "silver", "subscribe": "a"}}}, "table"),
    ],
)
def test_what_is_wrong_is_named(document: object, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=complaint):
        parse_config(document, base=tmp_path)


def test_an_unknown_pipeline_is_answered_with_those_there_are(tmp_path: Path) -> None:
    config = parse_config({"pipelines": {"p": {"kind": "bronze", "subscribe": "a"}}}, base=tmp_path)
    with pytest.raises(Invalid, match="no pipeline q; there are p"):
        config.pipeline("q")


def test_dead_letters_lie_beside_their_table() -> None:
    assert SilverSettings(subscribe="a", table="silver.a").dead_table == "silver.a_dead_letters"
