"""Upkeep beside the queries, with a compaction that only says it was called."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.errors import NotFound
from headrace.pipeline import housekeeping as module
from headrace.pipeline.housekeeping import Housekeeping
from headrace.pipeline.jobs.compact import Compacted
from headrace.pipeline.settings import PipelineConfig, parse_config


class FakeTables:
    def open(self, name: str) -> str:
        if name == "bronze.missing":
            raise NotFound(name)
        return name


def config_with(tmp_path: Path, **upkeep: float) -> PipelineConfig:
    pipelines = {
        "missing": {"kind": "bronze", "subscribe": "a", "table": "bronze.missing"},
        "orders": {"kind": "silver", "subscribe": "a", "table": "silver.orders", "schema": "id BIGINT"},
        "other": {"kind": "bronze", "subscribe": "a"},
    }
    return parse_config({"pipelines": pipelines, "upkeep": upkeep}, base=tmp_path)


def start(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, compact: Any, said: list[str] | None = None
) -> Housekeeping:
    monkeypatch.setattr(module, "open_tables", lambda config: FakeTables())
    monkeypatch.setattr(module, "compact", compact)
    kept = Housekeeping(config, ["missing", "orders"], SystemClock(), ([] if said is None else said).append)
    kept._next_s = 0
    return kept


def test_a_round_tends_every_table_of_the_pipelines_that_run_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tended: list[tuple[str, int]] = []
    said: list[str] = []

    def compact(spark: object, table: str, clock: object, *, orphan_age_ms: int) -> Compacted:
        tended.append((table, orphan_age_ms))
        if table == "silver.orders":
            raise RuntimeError("a failure here must not keep the next table waiting")
        return Compacted(files_before=9, files_after=1)

    kept = start(config_with(tmp_path, orphan_age_minutes=2), monkeypatch, compact, said)
    kept.look(None)
    kept.wait(60)
    assert tended == [("silver.orders", 120_000), ("silver.orders_dead_letters", 120_000)]
    assert said == ["silver.orders_dead_letters: 9 files became 1, 0 orphans deleted"]
    kept.look(None)
    kept.wait(60)
    assert len(tended) == 2, "the next round comes an hour later"


def test_rounds_never_overlap_and_zero_means_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    go_on = threading.Event()

    def compact(spark: object, table: str, clock: object, *, orphan_age_ms: int) -> Compacted:
        calls.append(table)
        go_on.wait(60)
        return Compacted()

    kept = start(config_with(tmp_path), monkeypatch, compact)
    kept.look(None)
    kept._next_s = 0
    kept.look(None)
    go_on.set()
    kept.wait(60)
    assert calls == ["silver.orders", "silver.orders_dead_letters"]
    never = start(config_with(tmp_path, every_minutes=0), monkeypatch, compact)
    never.look(None)
    never.wait(60)
    assert len(calls) == 2
