"""Faults under load, each with the question whether every promise was kept. Used with the real node and with mutants."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.support import mutants
from tests.support.checker import History
from tests.support.disk_image import DiskImage
from tests.support.door_producers import MLOG_TOPIC, DoorProducer, door_producers, kept_doors
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import Closed, RawKafka, batch_of
from tests.support.workload import Load, until

TOPIC = "chaos"
PARTITIONS = 4
LARGE_RING = 256 * 1024 * 1024
SMALL_RING = 4 * 1024 * 1024
"""Full within a second of load: uploads, checkpoints and trims are always under way."""
LAPS = (500, 1500)
"""Acknowledgements to wait for, so that a small ring goes round."""
PATIENCE_S = 60.0
"""For what takes a second at most, on a machine that has other things to do."""
_BLOCK = 4096
_SUPERBLOCKS = 2 * _BLOCK


def mutant(name: str) -> list[str]:
    """The program that runs a node with one rule broken."""
    return [sys.executable, str(mutants.__file__), name]


def start_node(
    data_dir: Path, address: str, program: list[str] | None = None, settings: Mapping[str, object] | None = None
) -> NodeProcess:
    node = NodeProcess(data_dir, {"listen.kafka": address, **(settings or {})}, program=program)
    node.start()
    with RawKafka(address) as client:
        client.create_topic(TOPIC, PARTITIONS)
        client.create_topic(MLOG_TOPIC)
    return node


def await_acks(history: History, count: int) -> None:
    """Until `count` more records are acknowledged, or something is broken already."""
    wanted = history.acked_count + count
    until(partial(_has_acked, history, wanted), PATIENCE_S)


def _has_acked(history: History, count: int) -> bool:
    return history.acked_count >= count or bool(history.violations)


def whole_log(node: NodeProcess) -> str:
    return node.log_path.read_text(errors="replace")


def verify(history: History, load: Load, address: str, node: NodeProcess) -> None:
    history.verify(address, load.places)
    history.check(node.log_text())


def survive_kills(
    data_dir: Path,
    address: str,
    seed: int,
    *,
    kills: int,
    program: list[str] | None = None,
    ring_bytes: int = LARGE_RING,
    acks: Sequence[int] = (0, 1, 20, 200),
    settings: Mapping[str, object] | None = None,
) -> None:
    """Some kills wait for acknowledgements, some hit the first moments after a start: `acks` is chosen from."""
    chance = random.Random(seed)
    history = History(seed)
    with kept_doors() as doors:
        node = start_node(data_dir, address, program, {"wal.capacity.bytes": ring_bytes, **doors, **(settings or {})})
        others = door_producers(doors, TOPIC, PARTITIONS, history)
        try:
            with Load(address, TOPIC, PARTITIONS, history, others=others) as load:
                for number in range(kills):
                    await_acks(history, chance.choice(acks))
                    time.sleep(chance.choice((0.0, 0.01, 0.1)))
                    node.kill()
                    if number % 5 == 4:
                        _kill_while_starting(node, chance)
                    node.start()
                    verify(history, load, address, node)
            verify(history, load, address, node)
            assert history.acked_count > kills * 10, "the load did not load"
            _check_doors(others, history)
        finally:
            node.kill()


def _check_doors(others: Sequence[DoorProducer], history: History) -> None:
    counts = {each.name: each.acked_count for each in others}
    print(f"acknowledged: {history.acked_count}, of these {counts}; verified: {history.verified_count}")
    assert all(counts.values()), f"a door took nothing: {counts}"


def _kill_while_starting(node: NodeProcess, chance: random.Random) -> None:
    """A kill in the middle of recovery, before any door is open."""
    node.spawn()
    time.sleep(chance.uniform(0.2, 0.9))
    node.kill()


def survive_power_cuts(
    directory: Path,
    address: str,
    seed: int,
    *,
    cuts: int,
    program: list[str] | None = None,
    ring_bytes: int = 64 * 1024 * 1024,
    acks: Sequence[int] = (1, 20, 200),
) -> None:
    """The process stands still with unflushed data in memory; the disk's image as it is then becomes the new disk."""
    chance = random.Random(seed)
    history = History(seed)
    disk = DiskImage(directory)
    node: NodeProcess | None = None
    with kept_doors() as doors:
        others = door_producers(doors, TOPIC, PARTITIONS, history)
        try:
            node = start_node(disk.mount_point / "data", address, program, {"wal.capacity.bytes": ring_bytes, **doors})
            node.log_path = directory / "node.log"
            with Load(address, TOPIC, PARTITIONS, history, others=others) as load:
                for _ in range(cuts):
                    await_acks(history, chance.choice(acks))
                    node.process_signal(signal.SIGSTOP)
                    disk.snapshot()
                    node.kill()
                    disk.power_on()
                    node.start()
                    verify(history, load, address, node)
            _check_doors(others, history)
        finally:
            if node is not None:
                node.kill()
            disk.unmount()


def survive_fence(directory: Path, address: str, seed: int, *, program: list[str] | None = None) -> None:
    """Another broker fences the WAL and reads it to its end: everything the owner ever acknowledges must be in there."""
    history = History(seed)
    owner = start_node(directory / "data", address, program)
    try:
        with Load(address, TOPIC, PARTITIONS, history) as load:
            await_acks(history, 200)
            os.close(os.open(directory / "data" / "wal" / "FENCE", os.O_CREAT | os.O_EXCL))
            owner.process_signal(signal.SIGSTOP)
            shutil.copytree(directory / "data", directory / "taken", ignore=shutil.ignore_patterns("*.sock"))
            owner.process_signal(signal.SIGCONT)
            _await_end(owner, address, history)
            owner.kill()
        (directory / "taken" / "wal" / "FENCE").unlink()
        taker = NodeProcess(directory / "taken", {"listen.kafka": address})
        try:
            taker.start()
            verify(history, load, address, taker)
        finally:
            taker.kill()
    finally:
        owner.kill()


def _await_end(node: NodeProcess, address: str, history: History) -> bool:
    """Until the process has ended. False when it still acknowledges; what it does is then on record."""
    numbers = itertools.count()

    def promises() -> bool:
        value = b"after the end:%d" % next(numbers)
        with contextlib.suppress(Closed, TimeoutError), RawKafka(address) as client:
            answer = client.produce(TOPIC, 0, batch_of([value]))
            if answer.error_code == 0:
                history.note_acked(TOPIC, 0, answer.base_offset, [value])
                return True
        return False

    eventually(lambda: _has_ended(node) or promises(), PATIENCE_S, "the node did not end", node.log_text)
    return _has_ended(node)


def _has_ended(node: NodeProcess) -> bool:
    return node.process is not None and node.process.poll() is not None


def survive_flipped_bits(
    directory: Path, address: str, seed: int, *, flips: int, program: list[str] | None = None
) -> None:
    """Bits rot in the ring while the node is down. Records may be missing, and are said to be; none may be wrong."""
    chance = random.Random(seed)
    history = History(seed)
    # What is uploaded is not read from the ring again.
    node = start_node(
        directory / "data", address, program, {"tier.upload.interval.ms": 3_600_000, "tier.stop.upload.ms": 0}
    )
    try:
        with Load(address, TOPIC, PARTITIONS, history, librdkafka=False) as load:
            await_acks(history, 400)
        history.check(node.log_text())
        assert node.stop() == 0
        ring = directory / "data" / "wal" / "ring"
        for _ in range(flips):
            _flip_bit(ring, chance)
        node.start()
        history.verify(address, load.places, may_miss=True)
        history.check(node.log_text())
        with RawKafka(address) as client:
            for topic, partition in load.places:
                value = b"after %d" % partition
                answer = client.produce(topic, partition, batch_of([value]))
                assert answer.error_code == 0, answer
                history.note_acked(topic, partition, answer.base_offset, [value])
        history.check(node.log_text())
        assert "quarantined" in whole_log(node)
    finally:
        node.kill()


def _flip_bit(ring: Path, chance: random.Random) -> None:
    """One bit somewhere in what is written, never in the empty part nor in the superblocks."""
    with ring.open("r+b") as file:
        data = file.read()
        written = [
            place for place in range(_SUPERBLOCKS, len(data), _BLOCK) if data[place : place + _BLOCK].count(0) != _BLOCK
        ]
        block = chance.choice(written[: len(written) // 2])
        used = len(data[block : block + _BLOCK].rstrip(b"\0"))
        place = block + chance.randrange(used)
        file.seek(place)
        file.write(bytes([data[place] ^ (1 << chance.randrange(8))]))


def survive_failed_flush(directory: Path, address: str, seed: int, *, program: list[str]) -> None:
    """Nobody retries on that file: waiters fail, the process ends with 1, recovery reads what is really there."""
    history = History(seed)
    broken = start_node(directory / "data", address, program)
    node = NodeProcess(directory / "data", {"listen.kafka": address})
    try:
        with Load(address, TOPIC, PARTITIONS, history) as load:
            eventually(lambda: mutants.FAILS_NOW in whole_log(broken), PATIENCE_S, "no flush failed", broken.log_text)
            assert _await_end(broken, address, history), "broken promises: a node whose disk fails goes on"
            assert broken.process is not None
            assert broken.process.returncode == 1, broken.log_text()
            assert "has failed and stops" in whole_log(broken)
            assert history.acked_count > 0
            node.start()
            verify(history, load, address, node)
            wanted = history.acked_count + 50
            eventually(lambda: history.acked_count >= wanted, PATIENCE_S, "producers did not go on", node.log_text)
            verify(history, load, address, node)
    finally:
        broken.kill()
        if node.process is not None:
            node.kill()
