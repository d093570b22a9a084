"""The whole path into the bronze table: row by row what was produced, once, beside backfills and compaction."""

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket, records
from tests.support.metastores import ManualClock
from tests.support.pipelines import catch_up, config_for, rows, table

from headrace.clock import SystemClock
from headrace.pipeline.jobs import backfill as backfill_module
from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig, UpkeepSettings
from headrace.pipeline.tables.maintenance import DAY_MS
from headrace.records.batch import Codec

TABLE = "bronze.records"


@pytest.fixture
def config(bucket: LocalBucket, tmp_path: Path) -> PipelineConfig:
    bucket.create_topic("orders", 2)
    return config_for(bucket, tmp_path, {"bronze": {"kind": "bronze", "subscribe": "orders"}})


def landed(spark: SparkSession, config: PipelineConfig) -> list[tuple[int, int, bytes]]:
    found = rows(spark, config, TABLE).select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, bytes(row.value)) for row in found)


def fill(spark: SparkSession, config: PipelineConfig, wanted: Wanted) -> int:
    tables = open_tables(config)
    landing = make_landing("bronze", config.pipeline("bronze"))
    bind_tables(landing, tables)
    job = Backfill(spark, config, landing, wanted)
    return sum(job.land(piece) for piece in job.pieces(tables.open(TABLE).coverage()))


def test_every_record_lands_once_as_it_was_produced(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket
) -> None:
    produced = {0: records(300), 1: records(120)}
    bucket.append("orders", 0, produced[0], codec=Codec.LZ4)
    bucket.append("orders", 1, produced[1])
    catch_up(spark, config, "bronze")
    more = records(40, start=120)
    bucket.append("orders", 1, more)
    catch_up(spark, config, "bronze")
    catch_up(spark, config, "bronze")
    produced[1] += more
    assert landed(spark, config) == [
        (partition, offset, record.value) for partition in produced for offset, record in enumerate(produced[partition])
    ]
    assert table(config, TABLE).coverage().count() == 460


@pytest.mark.slow
def test_a_backfill_beside_the_live_query_adds_only_what_is_missing(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.append("orders", 0, records(100))
    assert fill(spark, config, Wanted(endingOffsets='{"orders": {"0": 60, "1": 0}}')) == 60
    catch_up(spark, config, "bronze")
    assert [row[1] for row in landed(spark, config)] == list(range(100))
    assert fill(spark, config, Wanted()) == 0
    bucket.append("orders", 0, records(50, start=100))
    monkeypatch.setattr(backfill_module, "RECORDS_PER_PIECE", 20)
    assert fill(spark, config, Wanted()) == 50
    catch_up(spark, config, "bronze")
    assert [row[1] for row in landed(spark, config)] == list(range(150))


def test_a_backfill_by_time(spark: SparkSession, config: PipelineConfig, bucket: LocalBucket) -> None:
    bucket.append("orders", 0, records(100, time_ms=1_000_000))
    assert fill(spark, config, Wanted(startingTimestamp=1_000_020, endingTimestamp=1_000_030)) == 10
    assert [row[1] for row in landed(spark, config)] == list(range(20, 30))


class Tomorrow(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + 2 * DAY_MS


@pytest.mark.slow
def test_compaction_makes_few_files_and_loses_nothing(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, landing_clock: ManualClock
) -> None:
    for start in range(0, 100, 20):
        bucket.append("orders", 0, records(20, start=start))
        catch_up(spark, config, "bronze")
    before = landed(spark, config)
    bronze = table(config, TABLE)
    assert compact(spark, bronze, landing_clock).files_before == 0, "this hour is still open"
    bronze = table(msgspec.structs.replace(config, upkeep=UpkeepSettings(snapshots_kept=1)), TABLE)
    done = compact(spark, bronze, Tomorrow(), orphan_age_ms=0)
    assert (done.files_before, done.files_after) == (5, 1)
    assert done.orphans_deleted >= 5
    assert landed(spark, config) == before
    bucket.append("orders", 0, records(20, start=100))
    catch_up(spark, config, "bronze")
    assert len(landed(spark, config)) == 120
