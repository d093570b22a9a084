"""Checkpoints on S3, by hadoop-aws, on a real server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.support.bucket import LocalBucket, records
from tests.support.object_stores import BUCKET, CREDENTIALS, S3Server, seaweedfs
from tests.support.pipelines import table
from tests.support.spark import ONE_CORE

from headrace.bench.errors import RivalUnavailable
from headrace.bench.maven import hadoop_aws_jars
from headrace.pipeline.failpoints import VARIABLE
from headrace.pipeline.settings import load_config
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range

ROWS = 100


@pytest.fixture
def server() -> Iterator[S3Server]:
    with seaweedfs() as server:
        yield server


@pytest.fixture
def jars() -> list[Path]:
    try:
        return hadoop_aws_jars()
    except RivalUnavailable as error:
        pytest.skip(str(error))


def run(config: Path, name: str, failpoint: str = "") -> int:
    command = [sys.executable, "-m", "tests.support.pipeline_worker", str(config), name]
    environment = {**os.environ, **CREDENTIALS, "AWS_REGION": "us-east-1", VARIABLE: failpoint}
    return subprocess.run(command, env=environment, check=False).returncode


def configure(path: Path, bucket: LocalBucket, server: S3Server, jars: list[Path]) -> None:
    conf = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    document = {
        "source": {"bucket": bucket.url},
        "spark": {**msgspec.to_builtins(ONE_CORE), "class_archive": False, "conf": {**ONE_CORE.conf, **conf}},
        "checkpoints": f"s3a://{BUCKET}/{path.parent.name}/checkpoints",
        "pipelines": {
            "late": {"kind": "bronze", "subscribe": "orders", "startingOffsets": "latest", "maxOffsetsPerTrigger": 50}
        },
    }
    path.write_text(yaml.safe_dump(document))


@pytest.mark.slow
def test_a_query_with_its_checkpoint_on_s3_begins_at_the_end_and_goes_on_after_a_kill(
    bucket: LocalBucket, server: S3Server, jars: list[Path], tmp_path: Path
) -> None:
    topic_id = bucket.create_topic("orders")
    bucket.append("orders", 0, records(ROWS))
    path = tmp_path / "headrace.yml"
    configure(path, bucket, server, jars)
    assert run(path, "late") == 0
    bucket.append("orders", 0, records(ROWS, start=ROWS))
    assert run(path, "late", "after commit:1") == -signal.SIGKILL
    assert run(path, "late") == 0
    landed = table(load_config(path), "bronze.records")
    offsets = landed.handle.scan(selected_fields=("offset",)).to_arrow().column("offset").to_pylist()
    assert sorted(offsets) == list(range(ROWS, 2 * ROWS))
    # What was there before the query began is not covered: a backfill still lands it.
    assert landed.coverage() == Coverage({PartitionId(topic_id, 0): [Range(ROWS, 2 * ROWS)]})
