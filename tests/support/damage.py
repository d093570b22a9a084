"""What can happen to each file of a node, and the judgement on what the node then does.

A node has two ways to be right. It refuses to start: one sentence that names what is wrong, no stack, nothing changed, so
that with the right file back everything is there. Or it serves: every record it gives is the one that was acknowledged, those
it does not give lay in the damaged file and the node says that something is wrong, no offset is given out twice, and nothing
in the bucket is deleted.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.support.checker import Place
from tests.support.damaged_world import PLACES, Bucket, Records, World
from tests.support.node import START_SECONDS_MAX, NodeProcess, eventually
from tests.support.outages import problems
from tests.support.raw_kafka import EARLIEST, LATEST, RawKafka, batch_of

from headrace.log.wal.format import DATA_START
from headrace.records.batch import has_valid_crc, iterate_batches
from headrace.records.record import Record, read_records

RESTLESS: Final = {
    "tier.upload.interval.ms": 100,
    "tier.sweep.interval.ms": 100,
    "tier.grace.ms": 0,
    "tier.compact.sources": 1000,
}
"""Uploads and collects as soon as it may: what is taken for garbage by mistake is gone within the second."""
SETTLE_S: Final = 1.0
"""Several sweeps."""
REFUSAL_LENGTH_MAX: Final = 800
DAMAGES: Final = ("missing", "truncated", "one bit", "garbage", "older", "foreign")
GARBAGE_BYTES_MAX: Final = 1 << 20
STATES: Final = ("stopped", "running")


# -- what can be damaged -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """A file, a part of one, or an object."""

    name: str
    """What a refusal has to mention."""
    path: Path | None = None
    size: int = 0
    """Of a part at the beginning; 0 for the whole."""
    bucket: Bucket | None = None
    key: str = ""
    costs: frozenset[tuple[Place, int]] = frozenset()
    """Records that nobody has without it."""

    def read(self) -> bytes:
        if self.bucket is not None:
            return self.bucket.get(self.key)
        assert self.path is not None
        data = self.path.read_bytes()
        return data[: self.size] if self.size else data

    def write(self, data: bytes) -> None:
        if self.bucket is not None:
            self.bucket.put(self.key, data)
            return
        assert self.path is not None
        if not self.size:
            self.path.write_bytes(data)
            return
        with self.path.open("r+b") as file:
            file.write(data)

    def remove(self) -> None:
        if self.bucket is not None:
            self.bucket.delete(self.key)
        elif self.size:
            self.write(bytes(len(self.read())))
        else:
            assert self.path is not None
            # A running node may have let go of it by itself.
            self.path.unlink(missing_ok=True)


def _file(name: str, mention: str = "", costs: Callable[[World], Records] = lambda world: set()) -> "SpotOf":
    def find(world: World, directory: Path) -> Spot | None:
        found = sorted(directory.glob(name))
        if not found:
            return None
        return Spot(mention or found[0].name, found[0], costs=frozenset(costs(world)))

    return find


def _superblocks(world: World, directory: Path) -> Spot | None:
    return Spot("ring", directory / "wal" / "ring", DATA_START, costs=frozenset(_in_ring_or_spill(world)))


def _object(prefix: str, *, index: int = -1, mention: str = "") -> "SpotOf":
    def find(world: World, directory: Path) -> Spot | None:
        keys = world.bucket.names(prefix)
        if not keys or (index < -1 and len(keys) < -index):
            return None
        key = keys[index]
        return Spot(
            mention or Path(key).name, bucket=world.bucket, key=key, costs=frozenset(world.by_object.get(key, ()))
        )

    return find


def _in_ring_or_spill(world: World) -> Records:
    return world.only_in_ring | world.only_in_spill


SpotOf = Callable[[World, Path], Spot | None]
TARGETS: Final[dict[str, SpotOf]] = {
    # A spill belongs to its ring: without the one the other is nobody's.
    "ring": _file("wal/ring", costs=_in_ring_or_spill),
    "superblock": _superblocks,
    "checkpoint": _file("wal/checkpoint"),
    "spill": _file("wal/spill-*", costs=lambda world: world.only_in_spill),
    "mark": _file("wal/metastore.mark"),
    "metastore": _file("metastore.sqlite"),
    "metastore-wal": _file("metastore.sqlite-wal", mention="metastore.sqlite"),
    "object": _object("data/"),
    "manifest": _object("manifests/"),
    "manifest in the middle": _object("manifests/", index=-2),
    "inventory": _object("checkpoints/"),
    "snapshot": _object("metastore/"),
    "broker state": _object("brokers/"),
    "cluster.json": _object("cluster.json"),
    "broker.id": _file("broker.id"),
}


@dataclass(frozen=True)
class Cell:
    target: str
    damage: str
    state: str

    def __str__(self) -> str:
        return f"{self.target}, {self.damage}, {self.state}"


def all_cells() -> Iterator[Cell]:
    for target in TARGETS:
        for damage in DAMAGES:
            for state in STATES:
                yield Cell(target, damage, state)


def damaged_bytes(cell: Cell, spot: Spot, world: World, other: World) -> bytes | None:
    """What stands there afterwards; None when there is no such damage to this file."""
    match cell.damage:
        case "truncated":
            return None if spot.size else spot.read()[: len(spot.read()) // 2]
        case "one bit":
            data = bytearray(spot.read())
            data[_busy_place(cell.target, data, world)] ^= 0x10
            return bytes(data)
        case "garbage":
            return random.Random(cell.target).randbytes(min(len(spot.read()), GARBAGE_BYTES_MAX))
        case "older":
            return _older_bytes(cell, spot, world)
        case "foreign":
            theirs = TARGETS[cell.target](other, other.data_dir)
            return theirs.read() if theirs is not None else None
        case _:
            return b""


def _busy_place(target: str, data: bytearray, world: World) -> int:
    """Where a bit matters: in a record that only this file has, else in the middle of what is not zero."""
    if target == "ring":
        place, offset = min(world.only_in_ring)
        return data.index(world.history.promised(place)[offset]) + 100
    used = len(data.rstrip(b"\0"))
    return used // 2


def _older_bytes(cell: Cell, spot: Spot, world: World) -> bytes | None:
    if spot.bucket is not None:
        before = [key for key in spot.bucket.names(spot.key.rpartition("/")[0] + "/") if key < spot.key]
        return spot.bucket.get(before[-1]) if before and "/" in spot.key else None
    older = TARGETS[cell.target](world, world.older)
    if older is None:
        return None
    data = older.read()
    return data if data != spot.read() else None


# -- judging -----------------------------------------------------------------------------------------------------------


class Verdict(Exception):
    """The node was wrong."""


@dataclass
class Case:
    """One cell of the matrix on a world of its own."""

    cell: Cell
    world: World
    other: World
    spot: Spot

    def run(self) -> str:
        """`refused` or `served`; raises `Verdict` where the node did neither as it should."""
        right = self.spot.read()
        data = damaged_bytes(self.cell, self.spot, self.world, self.other)
        assert data is not None
        before = set(self.world.bucket.names())
        node = self._node()
        try:
            if self.cell.state == "running":
                start(node)
                self._touch(node)
                self._damage(data)
                self._touch(node)
                node.kill()
            else:
                self._damage(data)
            if not start(node):
                self._judge_refusal(node, right)
                return "refused"
            self._judge_service(node, before)
            return "served"
        finally:
            if node.process is not None and node.process.poll() is None:
                node.kill()

    def _node(self) -> NodeProcess:
        return NodeProcess(self.world.data_dir, {**RESTLESS, **self.world.stores.settings(self.world.prefix)})

    def _damage(self, data: bytes) -> None:
        if self.cell.damage == "missing":
            self.spot.remove()
        else:
            self.spot.write(data)

    def _touch(self, node: NodeProcess) -> None:
        """A little work, so that the node uses the file. It may have found out and stopped by itself."""
        if node.process is not None and node.process.poll() is None:
            self._produce(node)
            time.sleep(SETTLE_S / 2)

    def _produce(self, node: NodeProcess) -> None:
        with RawKafka(node.kafka, timeout=30.0) as client:
            for topic, partition in PLACES:
                values = [
                    f"{self.cell} {topic} {partition} {time.monotonic_ns()} {index}".encode() for index in range(3)
                ]
                answer = client.produce(topic, partition, batch_of(values))
                if answer.error_code == 0:
                    self.world.history.note_acked(topic, partition, answer.base_offset, values)

    # -- a refusal ---------------------------------------------------------------------------------------------------

    def _judge_refusal(self, node: NodeProcess, right: bytes) -> None:
        said = last_words(node)
        self._require("Traceback" not in said, f"refused with a stack:\n{said}")
        self._require(node.process is not None and node.process.returncode == 1, "ended with another status than 1")
        self._require(self.spot.name in said, f"the refusal does not name {self.spot.name}:\n{said}")
        self._require(len(said) <= REFUSAL_LENGTH_MAX, f"a refusal of {len(said)} characters:\n{said}")
        if self.cell.state == "running":
            return
        self.spot.write(right)
        self._require(start(node), f"with the right file back it still refuses:\n{last_words(node)}")
        self._judge_records(node, may_miss=set())

    # -- service -----------------------------------------------------------------------------------------------------

    def _judge_service(self, node: NodeProcess, before: set[str]) -> None:
        time.sleep(SETTLE_S)
        self._produce(node)
        self._judge_records(node, may_miss=set(self.spot.costs))
        log = node.log_text()
        self._require("Traceback" not in log, f"a stack in the log:\n{log}")
        gone = {key for key in before - set(self.world.bucket.names()) if key.startswith("data/")} - {self.spot.key}
        self._require(not gone, f"deleted from the bucket: {sorted(gone)}")

    def _judge_records(self, node: NodeProcess, *, may_miss: Records) -> None:
        history = self.world.history
        missing: Records = set()
        with RawKafka(node.kafka, timeout=30.0) as client:
            for place in PLACES:
                promised = history.promised(place)
                found = {record.offset: record.value or b"" for record in _read(client, place)}
                for offset, value in promised.items():
                    if offset not in found:
                        missing.add((place, offset))
                    elif found[offset] != value:
                        raise Verdict(
                            f"{self.cell}: {place} offset {offset} is {found[offset][:40]!r}, was {value[:40]!r}"
                        )
        lost = missing - may_miss
        self._require(
            not lost, f"{len(lost)} records are gone that the file did not hold: {sorted(lost)[:5]}\n{node.log_text()}"
        )
        told = problems(node)
        self._require(
            not missing or bool(told), f"{len(missing)} records are gone and /health says nothing\n{node.log_text()}"
        )
        self._require(not history.violations, f"{history.violations}\n{node.log_text()}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Verdict(f"{self.cell}: {what}")


def start(node: NodeProcess) -> bool:
    """False when it ends instead of coming up."""
    node.log_path.unlink(missing_ok=True)
    node.spawn()
    process = node.process
    assert process is not None
    eventually(
        lambda: process.poll() is not None or (node.data_dir / "endpoints.json").exists(),
        START_SECONDS_MAX,
        "neither up nor refused",
        node.log_text,
    )
    return process.poll() is None


def last_words(node: NodeProcess) -> str:
    """What is on the terminal besides the log's own events."""
    lines = node.log_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("{"))


def _read(client: RawKafka, place: Place) -> Iterator[Record]:
    """Every record that can be had, with a step over each offset that cannot."""
    offset, end = client.offset_at(*place, EARLIEST), client.offset_at(*place, LATEST)
    while offset < end:
        found = client.fetch(*place, offset, max_bytes=4 << 20, wait_ms=0)
        if found.error_code:
            offset += 1
            continue
        for _, batch in iterate_batches(found.records or b""):
            if not has_valid_crc(batch):
                raise Verdict(f"{place} at {offset}: a batch with a bad CRC")
        page = [record for record in read_records(found.records or b"") if record.offset >= offset]
        yield from page
        ends = [header.end_offset for header, _ in iterate_batches(found.records or b"")]
        if not ends:
            return
        offset = max(offset + 1, *ends)


def case_of(cell: Cell, world: World, other: World, directory: Path) -> Case | None:
    """None where the cell is empty: there is no such file, or no such version of it."""
    spot = TARGETS[cell.target](world, world.data_dir)
    if spot is None or damaged_bytes(cell, spot, world, other) is None:
        return None
    own = world.copied(directory)
    found = TARGETS[cell.target](own, own.data_dir)
    assert found is not None
    return Case(cell, own, other, replace(found, costs=spot.costs))
