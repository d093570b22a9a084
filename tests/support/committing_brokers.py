"""Many brokers that commit objects at a steady pace, far from their metastore, in virtual time: nothing but commits, no bytes."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.support.metastores import ETCD_LIMITS, NarrowMetastore
from tests.support.virtual_time import VirtualClock, VirtualLoop

from headrace.clock import Clock
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Compare, Metastore, Op, TxnResult, exists
from headrace.errors import Unavailable
from headrace.tier.commits import Commits, Sequencing
from headrace.tier.format.manifest import Manifest
from headrace.tier.plans import Author, Claim, Placed
from headrace.tier.segments import SegmentTable
from headrace.tier.sequencer import Committed, Sequencer

WINDOWS = 3
"""Uploads that a broker has under way at once, of partitions of their own."""
SEGMENTS = 8


class FarMetastore(NarrowMetastore):
    """Requests and replies take their time; so does the store, by what an etcd of three members was measured to take."""

    def __init__(self, store: Metastore, chance: random.Random, *, away_s: tuple[float, float]) -> None:
        super().__init__(store, ETCD_LIMITS)
        self._chance = chance
        self._away_s = away_s

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        await self.travel()
        await asyncio.sleep(0.0015 + 0.000017 * len(then_ops))
        result = await super().txn(compares, then_ops, else_ops)
        await self.travel()
        return result

    async def travel(self) -> None:
        await asyncio.sleep(self._chance.uniform(*self._away_s) / 2)


@dataclass
class Timings:
    commit_ms: list[float] = field(default_factory=list)
    """Of the commit alone."""
    given_up: int = 0

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.commit_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class CommittingBroker:
    def __init__(self, name: str, number: int, commits: Commits, topic: bytes, timings: Timings) -> None:
        self.name, self.number = name, number
        self._commits = commits
        self._topic = topic
        self._timings = timings
        self._ends = [0] * (WINDOWS * SEGMENTS)
        self._windows = [asyncio.Lock() for _ in range(WINDOWS)]

    async def run(self, *, per_s: float, seconds: float, chance: random.Random) -> None:
        """At its pace, whatever becomes of the commits before."""
        loop = asyncio.get_running_loop()
        begun = loop.time() + chance.random() / per_s
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_s * seconds)):
                await asyncio.sleep(max(0.0, begun + number / per_s - loop.time()))
                group.create_task(self._commit(number % WINDOWS))

    async def _commit(self, window: int) -> None:
        async with self._windows[window]:
            partitions = range(window * SEGMENTS, (window + 1) * SEGMENTS)
            target = await self._commits.new_object()
            try:
                claims = await self._commits.prepare(target, [self._claim(index) for index in partitions])
                begun = asyncio.get_running_loop().time()
                await self._commits.commit(target, [_placed(each) for each in claims], 1000, self._describe)
                self._timings.commit_ms.append((asyncio.get_running_loop().time() - begun) * 1000)
                for index in partitions:
                    self._ends[index] += 1
            except Unavailable:
                self._timings.given_up += 1
                await self._commits.settle()
            finally:
                self._commits.give_up(target)

    def _claim(self, index: int) -> Claim:
        base = self._commits.tail_start((self._topic, index))
        return self._commits.claim(self._topic, index, base_offset=base, end_offset=base + 1, leader_epoch=0)

    def _describe(self, number: int, at_ms: int) -> Manifest:
        return msgspec.structs.replace(self._commits.new_manifest(number, at_ms))


def _placed(claim: Claim) -> Placed:
    return Placed(claim=claim, position=0, length=100, record_count=1, max_timestamp_ms=1, min_leader_epoch=0)


async def commit_together(
    loop: VirtualLoop,
    *,
    brokers: int,
    per_s: float,
    seconds: float,
    is_sequenced: bool,
    away_s: tuple[float, float] = (0.002, 0.006),
) -> Timings:
    """`away_s` there and back, between brokers and controllers as between these and the store."""
    clock: Clock = VirtualClock(loop)
    store = await EmbeddedMetastore.open(clock=clock)
    chance = random.Random(17)
    timings = Timings()
    sequencer = Sequencer(
        FarMetastore(store, chance, away_s=away_s), lambda: exists("/headrace/cluster"), on_lost=lambda: None
    )
    running = asyncio.ensure_future(sequencer.run())
    try:
        found = [
            await _broker(
                number,
                store,
                clock,
                chance,
                away_s,
                _call(sequencer, chance, away_s) if is_sequenced else None,
                timings,
            )
            for number in range(1, brokers + 1)
        ]
        await asyncio.gather(*(each.run(per_s=per_s, seconds=seconds, chance=chance) for each in found))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()
    return timings


def _call(sequencer: Sequencer, chance: random.Random, away_s: tuple[float, float]) -> Sequencing:
    async def call(wanted: Any) -> Committed:
        await asyncio.sleep(chance.uniform(*away_s) / 2)
        done = await sequencer.commit(wanted)
        await asyncio.sleep(chance.uniform(*away_s) / 2)
        return done

    return call


async def _broker(
    number: int,
    store: EmbeddedMetastore,
    clock: Clock,
    chance: random.Random,
    away_s: tuple[float, float],
    sequence: Callable[..., Any] | None,
    timings: Timings,
) -> CommittingBroker:
    far = FarMetastore(store, chance, away_s=away_s)
    cluster = await Cluster.load(far, clock)
    name = f"broker-{number}"
    registered = await cluster.register(name, pb.BrokerRegistration())
    entry = await cluster.create_topic(f"of-{number}", partitions=WINDOWS * SEGMENTS, overrides={})
    author = Author(name, registered.numeric_id, registered.broker_epoch)
    commits = Commits(cluster, author, clock, SegmentTable(), life=f"{number:016x}", sequence=sequence)
    return CommittingBroker(name, number, commits, entry.id, timings)
