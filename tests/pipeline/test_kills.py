"""kill -9 of the driver, the JVM and the node, in the midst of micro-batches, under a producer that never stops.

The checker: every acknowledged record is in the log; every record of the log is in the table, or in the copy, once; and
nothing else is. `make pipeline-kills` runs all of it.
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.support.kill_arena import Arena, Place, Victim
from tests.support.pipelines import table
from tests.support.spark import SPARK

from headrace.pipeline.failpoints import PLACES
from headrace.pipeline.settings import PipelineConfig, load_config

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TIMES = int(os.environ.get("HEADRACE_TEST_PLACE_KILLS", "3"))
RANDOM_KILLS = int(os.environ.get("HEADRACE_TEST_RANDOM_KILLS", "30"))
SEED = os.environ.get("HEADRACE_TEST_SEED", "1")
IN_A_BATCH = [place for place in PLACES if "replay" not in place and "sink" not in place]
IN_THE_SINK = [place for place in PLACES if "sink" in place]
WRITTEN_TWICE = ("before write", "after write", "after commit")
"""Places that a batch passes once for the dead letters and once for the rows."""


class PipelineArena(Arena):
    """`silver`: typed rows and dead letters."""

    def __init__(self, directory: Path) -> None:
        config = directory / "headrace.yml"
        command = ["tests.support.pipeline_worker", str(config), "orders"]
        super().__init__(directory, command, until_killed="forever")
        silver = {
            "kind": "silver",
            "subscribe": "orders",
            "table": "silver.orders",
            "schema": "id BIGINT",
            "maxOffsetsPerTrigger": 400,
            "trigger_seconds": 0,
        }
        document = {
            "source": {"bootstrap_servers": self.brokers, "bucket": str(self.node.data_dir / "objects")},
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SPARK.conf},
            "upkeep": {"every_minutes": 0.2, "orphan_age_minutes": 1},
            "pipelines": {"orders": silver},
        }
        config.write_text(yaml.safe_dump(document))
        self._config = load_config(config)

    def check(self) -> None:
        self.finish()
        log = self.read("orders")
        assert self.acknowledged.items() <= log.items(), "something acknowledged is not in the log"
        good = landed(self._config, "silver.orders", "_", "id")
        dead = landed(self._config, "silver.orders_dead_letters", "", "value")
        assert max(Counter(place for place, _ in good + dead).values()) == 1, "a record landed twice"
        assert dict(good) == {place: int(value[7:-1]) for place, value in log.items() if value[:1] == b"{"}
        assert dict(dead) == {place: value for place, value in log.items() if value[:1] != b"{"}


def landed(config: PipelineConfig, name: str, prefix: str, column: str) -> list[tuple[Place, object]]:
    """By pyiceberg, without Spark."""
    columns = [f"{prefix}partition", f"{prefix}offset", column]
    rows = table(config, name).handle.scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
    return [((row[columns[0]], row[columns[1]]), row[column]) for row in rows]


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
            arena.kill_any_time(chance, chance.choice(["driver", "jvm", "broker"]))
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
