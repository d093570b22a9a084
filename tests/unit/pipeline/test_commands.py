"""`headrace pipeline` where it needs no Spark."""

import time
from pathlib import Path

import msgspec
import pytest

from headrace.cli.commands import pipeline
from headrace.errors import Invalid, NotFound, Unavailable, UnsupportedOperation
from headrace.pipeline.java import require_java
from headrace.pipeline.payload_schema import payload_shape
from headrace.pipeline.settings import SilverSettings
from headrace.pipeline.status import PipelineStatus, ProcessStatus, write_status
from headrace.pipeline.tables.catalog import WarehouseSettings, open_catalog


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


def test_what_is_not_there_is_said_before_spark_is_started(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline, "session", refuse)
    with pytest.raises(Invalid, match="no pipeline nope; there are bronze, logjam_minute"):
        pipeline.replay_dlq("nope", config=config)
    with pytest.raises(Invalid, match="bronze is not a silver pipeline"):
        pipeline.replay_dlq("bronze", config=config)
    with pytest.raises(NotFound, match=r"nope\.nothing"):
        pipeline.compact("nope.nothing", config=config)


def test_a_missing_configuration_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="headrace pipeline init"):
        pipeline.list_pipelines(config=tmp_path / "nothing.yml")


def test_status_tells_a_process_that_runs_from_one_that_is_gone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = PipelineStatus(name="orders", state="running", batch=7, lag={"orders-0": 12, "orders-2": 3}, lag_total=15)
    for age_ms in (0, 3 * 3_600_000):
        written_ms = time.time_ns() // 1_000_000 - age_ms
        status = ProcessStatus(process_id=5, started_ms=0, written_ms=written_ms, state="running", pipelines=(orders,))
        write_status(config.parent / "state", status)
        pipeline.status(config=config)
    running, gone = capsys.readouterr().out.split("process 5")[1:]
    assert running.startswith(", running, seen")
    assert gone.startswith(" was running when it was last seen, 3 hours ago; it has ended or hangs")
    assert "orders-2" in running, "lag by partition says which one is stuck"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no JSON Schema: Input data was truncated"),
        ("[1]", "is no JSON Schema: Expected `object`, got `array`"),
        ('{"type": "string"}', "must be an object with properties"),
    ],
)
def test_a_wrong_schema_file_is_named_with_what_is_wrong(tmp_path: Path, content: str | None, complaint: str) -> None:
    path = tmp_path / "orders.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match=complaint) as found:
        payload_shape(SilverSettings(subscribe="a", table="b.c", schema_file=str(path)))
    assert str(path) in str(found.value)


def test_a_warehouse_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Invalid, match=r"warehouse\.path .*file.* cannot be made"):
            open_catalog(WarehouseSettings(path=str(path)))


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnsupportedOperation, match=r"Java 17.*openjdk-17"):
        require_java()


def test_a_java_home_without_java_is_named_also_with_another_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes JAVA_HOME at its word."""
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UnsupportedOperation, match=r"JAVA_HOME is /nowhere"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    require_java()


def test_a_node_that_is_not_there_is_said_before_spark_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline, "session", refuse)
    config = tmp_path / "headrace.yml"
    pipeline.init(config=config, bootstrap="127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"no node at 127\.0\.0\.1:1: Connection refused"):
        pipeline.backfill("bronze", config=config)
    with pytest.raises(Unavailable, match=r"no node at 127\.0\.0\.1:1: Connection refused"):
        pipeline.quality(config=config)
