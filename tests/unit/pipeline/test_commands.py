"""`headrace pipeline` where it needs no Spark."""

from pathlib import Path

import msgspec
import pytest

from headrace.cli.commands import pipeline
from headrace.errors import Invalid, NotFound


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yml"
    pipeline.init(config=path)
    return path


def test_pipelines_are_listed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    pipeline.list_pipelines(config=config, json=True)
    listed = msgspec.json.decode(capsys.readouterr().out)
    assert [(row["pipeline"], row["kind"], row["table"]) for row in listed] == [
        ("bronze", "bronze", "bronze.records"),
        ("logjam_minute", "logjam_minute", "logjam.minutes"),
    ]


def test_status_before_any_run_says_so(config: Path) -> None:
    with pytest.raises(NotFound, match="no pipeline has run here yet"):
        pipeline.status(config=config)


def test_reset_asks_and_forgets_only_the_checkpoint(config: Path) -> None:
    checkpoint = config.parent / "checkpoints" / "bronze"
    (checkpoint / "offsets").mkdir(parents=True)
    with pytest.raises(Invalid, match="--yes"):
        pipeline.reset("bronze", config=config)
    assert checkpoint.exists()
    pipeline.reset("bronze", config=config, yes=True)
    assert not checkpoint.exists()


def test_a_missing_configuration_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="headrace pipeline init"):
        pipeline.list_pipelines(config=tmp_path / "nothing.yml")
