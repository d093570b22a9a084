"""The same jobs on a real multi-process Spark and through Spark Connect. Each starts JVMs of its own, hence `long`."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml
from tests.support.bucket import LocalBucket, records
from tests.support.node import eventually
from tests.support.ports import kept_port

from headrace.pipeline.queries import open_tables
from headrace.pipeline.settings import PipelineConfig, load_config

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CONNECT_PORT = 15002
SPARK_HOME = Path(pyspark.__file__).parent
CONNECT_SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from headrace.pipeline.queries import start_query
from headrace.pipeline.settings import load_config

spark = SparkSession.builder.remote("local[2]").getOrCreate()
config = load_config(Path(sys.argv[1]))
records = spark.read.format("headrace").options(**config.source.options(), subscribe="orders").load()
assert records.count() == 300
query = start_query(spark, config, "bronze", is_available_now=True)
query.awaitTermination()
assert query.exception() is None, query.exception()
spark.stop()
"""


@pytest.fixture
def config(bucket: LocalBucket, tmp_path: Path) -> Path:
    bucket.create_topic("orders", 3)
    for partition in range(3):
        bucket.append("orders", partition, records(100))
    path = tmp_path / "headrace.yml"
    pipelines = {"bronze": {"kind": "bronze", "subscribe": "orders", "maxOffsetsPerTrigger": 100}}
    spark = {"conf": {"spark.executor.memory": "600m", "spark.executor.cores": "1"}}
    path.write_text(yaml.safe_dump({"source": {"bucket": bucket.url}, "spark": spark, "pipelines": pipelines}))
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def python(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def landed(config: PipelineConfig) -> list[tuple[int, int]]:
    rows = open_tables(config).open("bronze.records").handle.scan(selected_fields=("partition", "offset")).to_arrow()
    return sorted((row["partition"], row["offset"]) for row in rows.to_pylist())


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


@pytest.fixture
def master(tmp_path: Path, port: int) -> Iterator[str]:
    """A standalone master and two workers, each a process of its own."""
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    address = f"spark://127.0.0.1:{port}"
    log = (tmp_path / "cluster.log").open("ab")
    deploy = "org.apache.spark.deploy"
    commands = [
        [spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    ]
    for number in range(2):
        directory = tmp_path / f"worker{number}"
        options = ["--cores", "1", "--memory", "700m", "--work-dir", str(directory), "--webui-port", "0"]
        commands.append([spark_class, f"{deploy}.worker.Worker", *options, "--host", "127.0.0.1", address])
    processes = [subprocess.Popen(command, env=environment(), stdout=log, stderr=log) for command in commands]
    try:
        text = tmp_path / "cluster.log"
        eventually(
            lambda: text.read_text(errors="replace").count("Successfully registered with master") == 2,
            180,
            "the workers did not register",
        )
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_standalone_cluster_lands_every_record_once(config: Path, master: str) -> None:
    for _ in range(2):
        python("-m", "headrace", "pipeline", "run", "bronze", "--available-now", "--master", master, "--config", config)
    assert landed(load_config(config)) == [(p, o) for p in range(3) for o in range(100)]


def is_connect_port_free() -> bool:
    """A Connect server has one port, and the one before may still be letting go of it."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", CONNECT_PORT)) != 0


def test_spark_connect_lands_every_record_once(config: Path) -> None:
    eventually(is_connect_port_free, 120, "another Connect server holds the port")
    python("-c", CONNECT_SCRIPT, config)
    assert landed(load_config(config)) == [(p, o) for p in range(3) for o in range(100)]
