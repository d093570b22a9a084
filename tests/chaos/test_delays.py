"""Records move from memory to the WAL, to objects, to other objects, and away, while every step takes a random time.

One integer replays the delays. What is promised to producers, consumers, groups and transactions holds all the while.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import delays
from tests.support.checker import History, Place
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import RawKafka
from tests.support.scenarios import PARTITIONS, PATIENCE_S, TOPIC, start_node, whole_log
from tests.support.tier_node import read_bucket
from tests.support.witnesses import (
    TOMBSTONE_S,
    CommittedKeysReader,
    CommittedReader,
    Committer,
    Erased,
    ErasedReader,
    Eraser,
    Filler,
    Generations,
    KeyedReader,
    KeyedTransactor,
    KeyedWriter,
    LastValues,
    Outcomes,
    RecreatedReader,
    Recreator,
    Rescanner,
    TimedWriter,
    Timeline,
    TimeSeeker,
    Toggler,
    Transactor,
    Witness,
)
from tests.support.workload import Load

from headrace.blob.local import LocalBlobStore
from headrace.records.record import Record

SECONDS = 5.0
SECONDS_LONG = 60.0
SEEDS_LONG = 4
KILL_EVERY_S = (5.0, 15.0)
STOPPED_SHARE = 0.3
"""Of the nodes that end: these are asked to, in the middle of everything."""
MIB = 1024 * 1024
OBJECT_TOPIC = "chaos-object"
SETTINGS = {
    "wal.capacity.bytes": 8 * MIB,
    "cache.write.size.bytes": MIB,
    "tier.upload.interval.ms": 100,
    "tier.upload.object.bytes": MIB,
    "tier.upload.stream.bytes": 64 * 1024,
    "tier.upload.concurrency": 4,
    "cache.read.size.bytes": 8 * MIB,
    "tier.sweep.interval.ms": 100,
    "tier.grace.ms": 1000,
    "tier.compact.source.bytes": MIB,
    "tier.compact.target.bytes": 2 * MIB,
    "tier.compact.sources": 4,
    "tier.snapshot.interval.ms": 500,
    "auto.create.topics.enable": "false",
}
TOPICS: dict[str, dict[str, str]] = {
    "filler": {"retention.bytes": str(2 * MIB)},
    "timed": {},
    "keyed": {"cleanup.policy": "compact", "delete.retention.ms": str(int(TOMBSTONE_S * 1000))},
    "erased": {},
    "transactional": {},
    "transactional-keyed": {"cleanup.policy": "compact"},
}
BROKEN = ("is started again", "Traceback", '"quarantined')
"""What a sound node never logs, whatever the delays."""


@pytest.mark.slow
def test_every_promise_holds_while_every_step_takes_its_time(tmp_path: Path, kafka_address: str, seed: int) -> None:
    keep_promises(tmp_path, kafka_address, seed, seconds=SECONDS, is_killed=False)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("number", range(SEEDS_LONG))
def test_every_promise_holds_for_long(
    tmp_path: Path, kafka_address: str, seed: int, number: int, is_killed: bool
) -> None:
    history = keep_promises(tmp_path, kafka_address, seed + number, seconds=SECONDS_LONG, is_killed=is_killed)
    verify_bucket(tmp_path, history)


def keep_promises(directory: Path, address: str, seed: int, *, seconds: float, is_killed: bool) -> History:
    chance = random.Random(seed)
    history = History(seed)
    node = start_node(directory / "data", address, delayed(seed), SETTINGS)
    witnesses: list[Witness] = []
    try:
        _create_topics(address)
        load = Load(address, TOPIC, PARTITIONS, history, librdkafka=False)
        object_load = Load(address, OBJECT_TOPIC, 2, history, librdkafka=False, names="object-")
        places = [*load.places, *object_load.places]
        witnesses = _witnesses(address, history)
        if not is_killed:
            # A node that starts cannot tell which records its WAL was enough for: it shows them once they are uploaded.
            witnesses.append(Toggler(address, OBJECT_TOPIC, history))
        with load, object_load:
            for witness in witnesses:
                witness.start()
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                _verify_until(
                    min(ends_at, time.monotonic() + chance.uniform(*KILL_EVERY_S)),
                    lambda: history.verify(address, places),
                )
                _check(history, node)
                if is_killed:
                    if chance.random() < STOPPED_SHARE:
                        assert node.stop() == 0, node.log_text()
                    else:
                        node.kill()
                    node.program = delayed(chance.randrange(1 << 31))
                    node.start()
            eventually(
                lambda: history.acked_count > 100 * seconds**0.5 or bool(history.violations),
                PATIENCE_S,
                "the load did not load",
                node.log_text,
            )
            _stop(witnesses)
        history.verify(address, places)
        _check(history, node)
        return history
    finally:
        _stop(witnesses)
        node.kill()


def verify_bucket(directory: Path, history: History) -> None:
    """What readers without a broker see is whole, too: every object, every CRC, every offset, and what was promised."""
    command = [sys.executable, "-m", "headrace", "tier", "verify", "--data-dir", str(directory / "data")]
    done = subprocess.run(
        [*command, "--set", f"wal.capacity.bytes={SETTINGS['wal.capacity.bytes']}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for place in [(TOPIC, index) for index in range(PARTITIONS)] + [(OBJECT_TOPIC, index) for index in range(2)]:
        records = asyncio.run(_records_in(directory / "data" / "objects", place))
        assert records, f"{place} was never uploaded"
        history.compare_below(place, records[-1].offset + 1, records)
    history.check()


async def _records_in(bucket: Path, place: Place) -> list[Record]:
    blobs = LocalBlobStore(bucket)
    try:
        return await read_bucket(blobs, *place)
    finally:
        await blobs.close()


def delayed(seed: int) -> list[str]:
    """The program that runs a node with delays."""
    return [sys.executable, str(delays.__file__), str(seed)]


def _create_topics(address: str) -> None:
    with RawKafka(address, timeout=30.0) as client:
        client.create_topic(OBJECT_TOPIC, 2, {"durability": "object"})
        for name, config in TOPICS.items():
            client.create_topic(name, configs=config)


def _witnesses(address: str, history: History) -> list[Witness]:
    timeline, values, erased, generations = Timeline(), LastValues(), Erased(), Generations()
    outcomes, keyed = Outcomes(), Outcomes()
    return [
        Filler(address, "filler", history),
        Rescanner(address, [(TOPIC, index) for index in range(PARTITIONS)], history, "rescanner"),
        Rescanner(address, [(OBJECT_TOPIC, 0), (OBJECT_TOPIC, 1)], history, "object-rescanner"),
        TimedWriter(address, "timed", history, timeline),
        TimeSeeker(address, "timed", history, timeline),
        KeyedWriter(address, "keyed", history, values),
        KeyedReader(address, "keyed", history, values),
        Eraser(address, "erased", history, erased),
        ErasedReader(address, "erased", history, erased, "erased-reader-0"),
        ErasedReader(address, "erased", history, erased, "erased-reader-1"),
        Recreator(address, "recreated", history, generations),
        RecreatedReader(address, "recreated", history, generations),
        Transactor(address, "transactional", history, outcomes, "transactor-0"),
        Transactor(address, "transactional", history, outcomes, "transactor-1"),
        CommittedReader(address, "transactional", history, outcomes, "committed-reader"),
        KeyedTransactor(address, "transactional-keyed", history, keyed, "transactor-2"),
        CommittedKeysReader(address, "transactional-keyed", history, keyed, "committed-keys-reader"),
        Committer(address, TOPIC, history),
    ]


def _verify_until(ends_at: float, verify: Callable[[], None]) -> None:
    while time.monotonic() < ends_at:
        verify()
        time.sleep(0.2)


def _check(history: History, node: NodeProcess) -> None:
    broken = [line for line in whole_log(node).splitlines() if any(each in line for each in BROKEN)]
    for line in broken[:3]:
        history.note_violation(f"logged: {line[:2000]}")
    history.check(node.log_text())


def _stop(witnesses: list[Witness]) -> None:
    for witness in witnesses:
        witness.stopping.set()
    for witness in witnesses:
        if witness.is_alive():
            witness.join(30.0)
