"""kill -9 of the driver, the JVM, its Python workers and the node, in the midst of micro-batches, under a producer that never stops.

With everything on this machine's disk, and with the log, the tables and the checkpoints on S3.

The checker: every acknowledged record is in the log; every record of the log is in the table, or in the copy, once; and
nothing else is. `make pipeline-kills` runs all of it.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.support.kill_arena import Arena, Place, Victim
from tests.support.object_stores import BUCKET, S3Server, seaweedfs
from tests.support.pipelines import table
from tests.support.spark import ONE_CORE

from headrace.bench.errors import RivalUnavailable
from headrace.bench.maven import hadoop_aws_jars
from headrace.pipeline.class_archive import archive_for
from headrace.pipeline.failpoints import PLACES
from headrace.pipeline.settings import PipelineConfig, load_config

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TIMES = int(os.environ.get("HEADRACE_TEST_PLACE_KILLS", "3"))
RANDOM_KILLS = int(os.environ.get("HEADRACE_TEST_RANDOM_KILLS", "30"))
SEED = os.environ.get("HEADRACE_TEST_SEED", "1")
ANYBODY: tuple[Victim, ...] = ("driver", "jvm", "workers", "broker")
IN_A_BATCH = [place for place in PLACES if "replay" not in place and "sink" not in place]
IN_THE_SINK = [place for place in PLACES if "sink" in place]
WRITTEN_TWICE = ("before write", "after write", "after commit")
"""Places that a batch passes once for the dead letters and once for the rows."""


@pytest.fixture(scope="module", autouse=True)
def _classes_kept() -> None:
    """Spark is started some eighty times."""
    archive = archive_for({})
    assert archive is not None
    archive.make()


class PipelineArena(Arena):
    """`silver`: typed rows and dead letters."""

    def __init__(self, directory: Path, s3: "OnS3 | None" = None) -> None:
        config = directory / "headrace.yml"
        command = ["tests.support.pipeline_worker", str(config), "orders"]
        super().__init__(directory, command, until_killed="forever", node_settings=s3.node if s3 is not None else None)
        silver = {
            "kind": "silver",
            "subscribe": "orders",
            "table": "silver.orders",
            "schema": "id BIGINT",
            "maxOffsetsPerTrigger": 20_000,
            "trigger_seconds": 0,
        }
        document: dict[str, object] = {
            "source": {"bootstrap_servers": self.brokers, "bucket": str(self.node.data_dir / "objects")},
            "spark": msgspec.to_builtins(ONE_CORE),
            "upkeep": {"every_minutes": 0.2, "orphan_age_minutes": 60},
            "pipelines": {"orders": silver},
        }
        if s3 is not None:
            document["source"] = {"bootstrap_servers": self.brokers, **s3.source}
            document["spark"] = s3.spark
            document["checkpoints"] = f"s3a://{BUCKET}/checkpoints"
            document["warehouse"] = {"catalog": s3.catalog(directory)}
        config.write_text(yaml.safe_dump(document))
        self._config = load_config(config)

    def check(self) -> None:
        self.finish()
        log = self.read("orders")
        assert self.acknowledged.items() <= log.items(), "something acknowledged is not in the log"
        good = landed(self._config, "silver.orders", "_topic_partition", "_offset", "id")
        dead = landed(self._config, "silver.orders_dead_letters", "partition", "offset", "value")
        assert max(Counter(place for place, _ in good + dead).values()) == 1, "a record landed twice"
        assert dict(good) == {place: int(value[7:-1]) for place, value in log.items() if value[:1] == b"{"}
        assert dict(dead) == {place: value for place, value in log.items() if value[:1] != b"{"}


class OnS3:
    """Settings that put the log, the tables and the checkpoints of a pipeline on one S3 server."""

    def __init__(self, server: S3Server, jars: list[Path]) -> None:
        self.node = {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": server.endpoint,
            "object_store.s3.prefix": "log",
        }
        self.source = {"bucket": f"s3://{BUCKET}/log", "bucket_endpoint": server.endpoint, "bucket_region": "us-east-1"}
        conf = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": server.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        self.spark = {**msgspec.to_builtins(ONE_CORE), "class_archive": False, "conf": {**ONE_CORE.conf, **conf}}
        self._endpoint = server.endpoint

    def catalog(self, directory: Path) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db?timeout=30",
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3.endpoint": self._endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": "${AWS_ACCESS_KEY_ID}",
            "s3.secret-access-key": "${AWS_SECRET_ACCESS_KEY}",
        }


@pytest.fixture
def s3() -> Iterator[OnS3]:
    try:
        jars = hadoop_aws_jars()
    except RivalUnavailable as error:
        pytest.skip(str(error))
    with seaweedfs() as server:
        yield OnS3(server, jars)


def landed(config: PipelineConfig, name: str, *columns: str) -> list[tuple[Place, object]]:
    """Partition, offset and a third column, by pyiceberg, without Spark."""
    rows = table(config, name).handle.scan(selected_fields=columns).to_arrow().to_pylist()
    return [((partition, offset), value) for partition, offset, value in (map(row.get, columns) for row in rows)]


@pytest.mark.parametrize("victim", ["driver", "jvm", "broker"])
def test_a_kill_at_every_place_of_a_micro_batch(tmp_path: Path, victim: Victim) -> None:
    with PipelineArena(tmp_path) as arena:
        for time in range(TIMES):
            for place in IN_A_BATCH:
                # Over the rounds the same place is met in the first table's commit and in the second's.
                arena.kill_at(place, victim, time_there=1 + time % 2 if place in WRITTEN_TWICE else 1)
        arena.check()
        assert arena.kill_count == TIMES * len(IN_A_BATCH)


def test_kills_at_random(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with PipelineArena(tmp_path) as arena:
        for _ in range(RANDOM_KILLS):
            arena.kill_any_time(chance, chance.choice(ANYBODY))
        arena.check()


def test_kills_with_everything_on_s3(tmp_path: Path, s3: OnS3) -> None:
    chance = random.Random(SEED)
    with PipelineArena(tmp_path, s3) as arena:
        for place in IN_A_BATCH:
            arena.kill_at(place, chance.choice(ANYBODY))
        for _ in range(RANDOM_KILLS - len(IN_A_BATCH)):
            arena.kill_any_time(chance, chance.choice(ANYBODY))
        arena.check()


def test_two_processes_of_the_same_pipeline_by_mistake(tmp_path: Path) -> None:
    """Same settings, same checkpoint, same tables, both alive all the time and each killed once."""
    with PipelineArena(tmp_path) as arena, arena.another_worker() as other:
        arena.kill_at("after write", "driver")
        other.kill()
        arena.kill_at("after commit", "jvm")
        arena.check()


@pytest.mark.parametrize("victim", ["driver", "jvm", "broker", "sender"])
def test_a_kill_at_every_place_of_the_sink(tmp_path: Path, victim: Victim) -> None:
    command = ["tests.support.sink_worker", "{brokers}", str(tmp_path / "checkpoint")]
    with Arena(tmp_path, command, until_done="now") as arena:
        for _ in range(TIMES):
            for place in IN_THE_SINK:
                arena.kill_at(place, victim)
        arena.finish()
        log = arena.read("orders")
        assert arena.acknowledged.items() <= log.items(), "something acknowledged is not in the log"
        assert Counter(arena.read("copies").values()) == Counter(log.values())
