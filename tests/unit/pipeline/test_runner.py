"""Supervision, with queries that fail on command instead of Spark."""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Invalid
from headrace.pipeline import runner as runner_module
from headrace.pipeline.explain import brief
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineConfig, parse_config
from headrace.pipeline.status import read_status


class FakeContext:
    def setLocalProperty(self, name: str, value: str) -> None:
        pass


class FakeConf:
    is_gone = False

    def get(self, name: str) -> str:
        if self.is_gone:
            raise ConnectionRefusedError("the gateway is closed")
        return name


class FakeSession:
    sparkContext = FakeContext()
    is_stopped = False

    def __init__(self) -> None:
        self.conf = FakeConf()

    def stop(self) -> None:
        self.is_stopped = True


class FakeQuery:
    def __init__(self, error: Exception | None, rows: int = 0) -> None:
        self._error = error
        self.isActive = False
        self.status = {"isTriggerActive": False}
        self.recentProgress: list[dict[str, Any]] = (
            [{"batchId": 0, "numInputRows": rows, "durationMs": {"triggerExecution": 100}, "sources": [{}]}]
            if rows
            else []
        )

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    bronze = {"kind": "bronze", "subscribe": "a"}
    return parse_config({"pipelines": {"good": bronze, "bad": bronze}}, base=tmp_path)


class JvmKilled(ConnectionRefusedError):
    """What starting a query gives when the JVM died before it."""


def run(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, queries: dict[str, list[Any]], **options: Any) -> int:
    def start_query(spark: FakeSession, config: object, name: str, *, is_available_now: bool) -> FakeQuery:
        made = queries[name].pop(0)
        spark.conf.is_gone = isinstance(made, JvmKilled)
        if isinstance(made, Exception):
            raise made
        assert isinstance(made, FakeQuery)
        return made

    monkeypatch.setattr(runner_module, "open_session", lambda settings: FakeSession())
    monkeypatch.setattr(runner_module, "start_query", start_query)
    monkeypatch.setattr(runner_module, "POLL_S", 0)
    monkeypatch.setattr(runner_module, "BACKOFF_MIN_S", 0)
    made = Runner(config, list(queries), **options)
    if not options.get("is_available_now"):
        monkeypatch.setattr(made, "_is_finished", lambda: not any(queries.values()))
    return made.run()


def test_a_failing_pipeline_is_started_again_and_takes_no_other_with_it(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    queries: dict[str, list[Any]] = {
        "good": [FakeQuery(None, rows=5)],
        "bad": [Invalid("first"), FakeQuery(RuntimeError("second")), FakeQuery(RuntimeError("third"))],
    }
    run(config, monkeypatch, queries, tell=said.append)
    status = read_status(Path(config.state_dir))
    assert status is not None
    good, bad = status.pipelines
    assert (good.rows_total, good.restart_count, good.error) == (5, 0, None)
    assert bad.restart_count >= 2
    assert bad.error in ("second", "third")
    assert "bad: failed: first" in said
    assert status.state == "stopped"


def test_a_run_until_caught_up_ends_and_tells_failure_by_its_exit_status(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(config, monkeypatch, {"good": [FakeQuery(None)]}, is_available_now=True) == 0
    passing = {"good": [FakeQuery(None)], "bad": [FakeQuery(RuntimeError("busy")), FakeQuery(None)]}
    assert run(config, monkeypatch, passing, is_available_now=True) == 0, "what passes is worth another try"
    status = read_status(Path(config.state_dir))
    assert status is not None
    assert [(each.state, each.error) for each in status.pipelines] == [("done", None), ("done", None)]
    lasting = {"good": [FakeQuery(None)], "bad": [FakeQuery(RuntimeError("no")) for _ in range(3)]}
    assert run(config, monkeypatch, lasting, is_available_now=True) == 1
    assert lasting["bad"] == []


def test_a_process_whose_spark_is_gone_says_so_and_ends_in_failure(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GoneQuery(FakeQuery):
        def __init__(self) -> None:
            super().__init__(None)
            self.isActive = True

        def __getattribute__(self, name: str) -> Any:
            if name == "recentProgress":
                raise ConnectionRefusedError("the gateway is closed")
            return super().__getattribute__(name)

    said: list[str] = []
    queries: dict[str, list[Any]] = {"good": [FakeQuery(None)], "bad": [GoneQuery()]}
    assert run(config, monkeypatch, queries, is_available_now=True, tell=said.append) == 1
    status = read_status(Path(config.state_dir))
    assert status is not None
    assert (status.state, status.pipelines[1].error) == ("stopped", "Spark is gone")
    assert any(line.startswith("Spark is gone") for line in said)


def test_a_jvm_that_is_gone_before_a_query_starts_is_told_from_a_broker_that_is_away(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: dict[str, list[Any]] = {"good": [ConnectionRefusedError("the broker is away"), FakeQuery(None)]}
    assert run(config, monkeypatch, away, is_available_now=True) == 0
    gone: dict[str, list[Any]] = {"good": [JvmKilled("the gateway is closed"), FakeQuery(None)]}
    assert run(config, monkeypatch, gone, is_available_now=True) == 1
    assert len(gone["good"]) == 1, "nothing can be started in a JVM that is no more"


def test_a_spark_that_does_not_start_ends_the_process_in_failure(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_session(settings: object) -> FakeSession:
        raise ConnectionRefusedError("the JVM was killed while it started")

    monkeypatch.setattr(runner_module, "open_session", open_session)
    assert Runner(config, ["good"]).run() == 1
    status = read_status(Path(config.state_dir))
    assert status is not None
    assert (status.state, status.pipelines[0].error) == ("stopped", "Spark is gone")


def test_a_pipeline_whose_node_is_gone_stops(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "open_session", lambda settings: FakeSession())
    assert Runner(config, ["good"]).run(parent_id=-1) == 0


def test_the_line_that_explains_an_error_is_found_in_sparks_wrapping() -> None:
    wrapped = RuntimeError(
        "[STREAM_FAILED] Query [id = x] terminated\nTraceback ...\n"
        "headrace.pipeline.source.errors.DataLost: orders-0: offsets 1 to 5 were deleted\n"
    )
    assert brief(wrapped) == "orders-0: offsets 1 to 5 were deleted"
    assert brief(RuntimeError("plain\nmore")) == "plain"
    assert brief(Invalid("ours")) == "ours"
