"""Log and tables on S3: no Hadoop jar, and no secret where Spark could show it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import obstore
import pytest
from obstore.store import S3Store
from pyspark.sql import SparkSession
from tests.pipeline.test_bronze import Tomorrow
from tests.support.bucket import LocalBucket, records
from tests.support.object_stores import BUCKET, CREDENTIALS, S3Server, moto
from tests.support.pipelines import catch_up, rows

from headrace.clock import SystemClock
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.queries import open_tables
from headrace.pipeline.schemas import BRONZE_DDL, parse_ddl
from headrace.pipeline.settings import PipelineConfig, UpkeepSettings, parse_config
from headrace.pipeline.tables.catalog import WarehouseSettings


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto() as server:
        yield server


def upload(bucket: LocalBucket, server: S3Server, config: PipelineConfig) -> None:
    store = S3Store(
        BUCKET,
        config={"endpoint": server.endpoint, "region": "us-east-1"},
        client_options={"allow_http": True},
        prefix=config.source.bucket.removeprefix(f"s3://{BUCKET}/"),
    )
    for path in bucket.directory.rglob("*"):
        if path.is_file():
            obstore.put(store, str(path.relative_to(bucket.directory)), path.read_bytes())


@pytest.fixture
def config(server: S3Server, tmp_path: Path) -> PipelineConfig:
    return parse_config(
        {
            "source": {
                "bucket": f"s3://{BUCKET}/{tmp_path.name}/log",
                "bucket_endpoint": server.endpoint,
                "bucket_region": "us-east-1",
            },
            "warehouse": {
                "catalog": {
                    "type": "sql",
                    "uri": f"sqlite:///{tmp_path}/catalog.db",
                    "warehouse": f"s3://{BUCKET}/{tmp_path.name}/warehouse",
                    "s3.endpoint": server.endpoint,
                    "s3.region": "us-east-1",
                }
            },
            "pipelines": {"bronze": {"kind": "bronze", "subscribe": "orders"}},
        },
        base=tmp_path,
    )


@pytest.mark.usefixtures("landing_clock")
def test_a_log_on_s3_lands_in_a_table_on_s3(
    spark: SparkSession, bucket: LocalBucket, server: S3Server, config: PipelineConfig
) -> None:
    bucket.create_topic("orders", 2)
    for start in (0, 200):
        for partition in range(2):
            bucket.append("orders", partition, records(200, start=start))
        upload(bucket, server, config)
        catch_up(spark, config, "bronze")

    def landed() -> list[tuple[int, int]]:
        return sorted((r.partition, r.offset) for r in rows(spark, config, "bronze.records").collect())

    assert landed() == [(p, o) for p in range(2) for o in range(400)]
    table = open_tables(msgspec.structs.replace(config, upkeep=UpkeepSettings(snapshots_kept=1))).open("bronze.records")
    done = compact(spark, table, Tomorrow(), orphan_age_ms=0)
    assert done.files_before >= 2
    assert done.orphans_deleted > 0
    assert landed() == [(p, o) for p in range(2) for o in range(400)]
    assert compact(spark, table, SystemClock()).files_before == 0


SECRET = "kept-in-the-catalogs-own-properties"


def test_credentials_of_the_catalog_reach_executors_and_no_plan(
    spark: SparkSession, bucket: LocalBucket, server: S3Server, config: PipelineConfig
) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    upload(bucket, server, config)
    given = {**config.warehouse.catalog, "s3.access-key-id": "key", "s3.secret-access-key": SECRET}
    config = msgspec.structs.replace(config, warehouse=WarehouseSettings(catalog=given))
    catch_up(spark, config, "bronze")
    table = open_tables(config).open("bronze.records")
    assert table.target(parse_ddl(BRONZE_DDL)).access.properties["s3.secret-access-key"] == SECRET
    frame = spark.read.format("headrace").options(**config.source.options(), subscribe="orders").load()
    landed = rows(spark, config, "bronze.records")
    assert (frame.count(), landed.count()) == (10, 10)
    for shown in (frame, landed):
        plan = shown._jdf.queryExecution().toString()
        assert SECRET not in plan
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in plan
