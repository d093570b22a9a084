"""kill -9 under load, over and over: nothing acknowledged or read is lost, moved, changed or doubled."""

import contextlib
import random
import time
from functools import partial
from pathlib import Path

import pytest
from tests.support.checker import History
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka
from tests.support.workload import Load, until

TOPIC = "chaos"
PARTITIONS = 4
KILLS = 20
KILLS_LONG = 200
KILLS_PER_DIRECTORY = 40
"""Then a new directory: the ring of one is small, and first starts deserve their kills too."""


@pytest.mark.slow
@pytest.mark.requirement("R3.37", "R3.40", "R3.119", "R4.64", "X0.1")
def test_nothing_promised_is_lost_by_kill_nine(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_kills(tmp_path / "data", kafka_address, seed, kills=KILLS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.requirement("R3.37", "R3.40", "R3.119", "R4.64")
def test_nothing_promised_is_lost_by_two_hundred_kills(tmp_path: Path, kafka_address: str, seed: int) -> None:
    for number in range(KILLS_LONG // KILLS_PER_DIRECTORY):
        survive_kills(tmp_path / f"data{number}", kafka_address, seed + number, kills=KILLS_PER_DIRECTORY)


def survive_kills(data_dir: Path, address: str, seed: int, *, kills: int) -> None:
    chance = random.Random(seed)
    node = NodeProcess(data_dir, {"listen.kafka": address, "wal.capacity.bytes": 256 * 1024 * 1024})
    history = History(seed)
    node.start()
    with contextlib.closing(RawKafka(address)) as client:
        client.create_topic(TOPIC, PARTITIONS)
    try:
        with Load(address, TOPIC, PARTITIONS, history) as load:
            for number in range(kills):
                # Some kills wait for acknowledgements, some hit the first moments after a start.
                wanted = history.acked_count + chance.choice((0, 1, 20, 200))
                until(partial(has_acked, history, wanted), 10.0)
                time.sleep(chance.choice((0.0, 0.01, 0.1)))
                node.kill()
                if number % 5 == 4:
                    kill_while_starting(node, chance)
                node.start()
                history.verify(address, load.places)
                history.check(node.log_text())
        history.verify(address, load.places)
        history.check(node.log_text())
        assert history.acked_count > kills * 10, "the load did not load"
    finally:
        node.kill()


def has_acked(history: History, count: int) -> bool:
    return history.acked_count >= count or bool(history.violations)


def kill_while_starting(node: NodeProcess, chance: random.Random) -> None:
    """A kill in the middle of recovery, before any door is open."""
    node.spawn()
    time.sleep(chance.uniform(0.2, 0.9))
    node.kill()
