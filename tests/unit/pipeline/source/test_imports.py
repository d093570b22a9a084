"""What a query's processes import. Spark starts four of them one after the other, and each waits for its imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.bucket import LocalBucket, records

from headrace.records.batch import Codec

LOOK_UP = """
import pyspark.sql.datasource
before = set(sys.modules)
import pyspark_headrace
pyspark_headrace.DefaultSource(options={"includeHeaders": "true"}).schema()
print(*sorted(set(sys.modules) - before))
"""
READ = """
import pyspark_headrace
source = pyspark_headrace.DefaultSource(options={"bucket": sys.argv[1], "subscribe": "orders"})
reader = source.reader(source.schema())
assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 300
print(*sorted(sys.modules))
"""

READ_TWICE = """
import gc
import pyspark_headrace
source = pyspark_headrace.DefaultSource(options={"bucket": sys.argv[1], "subscribe": "orders"})
reader = source.reader(source.schema())
for _ in range(2):
    for part in reader.partitions():
        list(reader.read(part))
    print(gc.get_freeze_count())
"""
SESSION = """
import headrace.pipeline.session
print(*sorted(sys.modules))
"""


def run(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", f"import sys\n{script}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def imported_by(script: str, *arguments: str) -> set[str]:
    return set(run(script, *arguments))


def test_looking_the_format_up_imports_nothing_that_reads_or_writes() -> None:
    ours = {name for name in imported_by(LOOK_UP) if not name.startswith("pyspark.")}
    assert ours == {
        "pyspark_headrace",
        "headrace",
        "headrace.errors",
        "headrace.pipeline",
        "headrace.pipeline.source",
        "headrace.pipeline.source.errors",
        "headrace.pipeline.source.spark",
    }


def test_reading_a_bucket_imports_no_kafka_no_logging_and_no_pandas(tmp_path: Path) -> None:
    pytest.importorskip("headrace.pipeline.decoder._kernel", reason="the numpy kernel has Arrow import pandas")
    bucket = LocalBucket(tmp_path)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(300), codec=Codec.LZ4)
    imported = imported_by(READ, bucket.url)
    assert "headrace.pipeline.source.reading" in imported
    assert not imported & {"pandas", "structlog", "confluent_kafka", "pyiceberg", "headrace.wire", "asyncio"}


def test_a_worker_spares_its_imports_from_collection_once(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(300))
    first, second = map(int, run(READ_TWICE, bucket.url))
    assert 10_000 < second <= first


def test_a_session_is_opened_without_importing_tables_or_the_sink() -> None:
    assert not imported_by(SESSION) & {"pandas", "pyiceberg", "structlog", "confluent_kafka"}
