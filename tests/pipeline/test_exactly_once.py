"""Whatever dies, wherever: every record is in the table once. The checker compares row by row."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket, records
from tests.support.pipelines import catch_up, config_for, rows

from headrace.clock import SystemClock
from headrace.pipeline import failpoints
from headrace.pipeline.failpoints import PLACES, VARIABLE
from headrace.pipeline.jobs.replay import replay_dead_letters
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig
from headrace.records.record import NewRecord

IN_A_BATCH = [place for place in PLACES if "replay" not in place and "sink" not in place]
SILVER: dict[str, object] = {
    "kind": "silver",
    "subscribe": "orders",
    "table": "silver.orders",
    "schema": "id BIGINT",
    "maxOffsetsPerTrigger": 40,
}


def produce(bucket: LocalBucket, start: int, count: int) -> None:
    """Every fifth record is poison."""
    bucket.append(
        "orders",
        0,
        [
            NewRecord(value=b"poison" if i % 5 == 0 else b'{"id": %d}' % i, timestamp_ms=1)
            for i in range(start, start + count)
        ],
    )


def check(spark: SparkSession, config: PipelineConfig, count: int) -> None:
    good = sorted(row._offset for row in rows(spark, config, "silver.orders").collect())
    dead = sorted(row.offset for row in rows(spark, config, "silver.orders_dead_letters").collect())
    assert good == [i for i in range(count) if i % 5]
    assert dead == [i for i in range(count) if i % 5 == 0]


@pytest.fixture
def config(bucket: LocalBucket, tmp_path: Path) -> PipelineConfig:
    bucket.create_topic("orders")
    return config_for(bucket, tmp_path, {"orders": SILVER})


@pytest.mark.slow
def test_a_failure_at_any_place_of_a_batch_loses_and_repeats_nothing(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    for place in IN_A_BATCH:
        produce(bucket, count, 30)
        count += 30
        monkeypatch.setenv(VARIABLE, f"{place}:1:raise")
        with pytest.raises(Exception, match="failpoint"):
            catch_up(spark, config, "orders")
        monkeypatch.delenv(VARIABLE)
    catch_up(spark, config, "orders")
    check(spark, config, count)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["replay noted", "replay accepted"])
def test_a_replay_that_fails_half_way_goes_on(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    produce(bucket, 0, 20)
    catch_up(spark, config, "orders")
    silver = make_landing("orders", config.pipeline("orders"))
    assert isinstance(silver, Silver)
    tables = open_tables(config)
    bind_tables(silver, tables)
    main, dead = tables.open("silver.orders"), tables.open("silver.orders_dead_letters")
    monkeypatch.setattr(failpoints, "_seen", {})
    monkeypatch.setenv(VARIABLE, f"{place}:1:raise")
    with pytest.raises(Exception, match="failpoint"):
        replay_dead_letters(spark, silver, main, dead, SystemClock())
    monkeypatch.delenv(VARIABLE)
    produce(bucket, 20, 20)
    catch_up(spark, config, "orders")
    assert replay_dead_letters(spark, silver, main, dead, SystemClock()).still_dead == 8
    check(spark, config, 40)


def test_two_pipelines_over_the_same_topic_into_one_table_land_each_record_once(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    """By mistake, say: the same settings under another name, and so another checkpoint."""
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    bronze: dict[str, object] = {"kind": "bronze", "subscribe": "orders", "maxOffsetsPerTrigger": 30}
    config = config_for(bucket, tmp_path, {"first": bronze, "second": {**bronze, "maxOffsetsPerTrigger": 70}})
    bind_tables(make_landing("first", config.pipeline("first")), open_tables(config))
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(catch_up, spark, config, name) for name in ("first", "second")]:
            run.result()
    landed = sorted(row.offset for row in rows(spark, config, "bronze.records").collect())
    assert landed == list(range(100))


def write_config(bucket: LocalBucket, tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yml"
    spark = {"master": "local[2]", "driver_memory": "1g"}
    path.write_text(yaml.safe_dump({"source": {"bucket": bucket.url}, "spark": spark, "pipelines": {"orders": SILVER}}))
    return path


def start_worker(config: Path, failpoint: str | None = None) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, **({VARIABLE: failpoint} if failpoint else {})}
    log = (config.parent / "worker.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.pipeline_worker", str(config), "orders"],
        env=environment,
        stdout=log,
        stderr=log,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_nine_after_the_files_and_before_the_commit(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, tmp_path: Path
) -> None:
    """The real thing, once, where it hurts most; `make pipeline-kills` does every place, and every process."""
    produce(bucket, 0, 100)
    worker = start_worker(write_config(bucket, tmp_path), "after write:3")
    assert worker.wait(600) == -signal.SIGKILL
    catch_up(spark, config, "orders")
    check(spark, config, 100)
