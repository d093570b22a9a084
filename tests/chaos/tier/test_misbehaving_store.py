"""A store that misbehaves by a script, over minutes and hours of virtual time, under a load that never stops.

Whatever it answers: nothing acknowledged is lost, changed or doubled, no object that a live segment needs is deleted, and
within a minute of its health everything is uploaded and `durability=object` records are acknowledged again. The tier runs
as in a node, with all its tasks; only time is virtual.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.misbehaving_store import (
    FLIPPED,
    LATE,
    LONG,
    LOST,
    SHORT,
    SILENT,
    STATUSES,
    WRITES,
    Answer,
    MisbehavingStore,
    Phase,
)
from tests.support.tier_node import TierNode, read_all, read_bucket, values_of
from tests.support.virtual_time import VirtualClock, VirtualLoop, run_virtually

from headrace.blob.answers import Request
from headrace.blob.metrics import BlobMetrics
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Metastore, Op, TxnResult
from headrace.log.partition import PartitionLog
from headrace.tier.settings import TierSettings

MINUTE = 60.0
SETTINGS = TierSettings(
    upload_interval_ms=2_000,
    upload_stream_bytes=500,
    upload_concurrency=4,
    sweep_interval_ms=5_000,
    grace_ms=10_000,
    compact_sources=3,
    snapshot_interval_ms=20_000,
    read_ahead_bytes=0,
)
"""Everything often, and hardly any grace: what is wrongly marked is wrongly deleted before the run ends."""


class SlowMetastore:
    """Takes its time before and after a transaction: whoever is cancelled meanwhile does not know what became of it."""

    def __init__(self, store: Metastore, seed: int) -> None:
        self._store = store
        self._dice = random.Random(seed)

    def __getattr__(self, name: str) -> Any:  # Any: whatever the wrapped store has
        return getattr(self._store, name)

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        await asyncio.sleep(self._dice.random() * 0.02)
        result = await self._store.txn(compares, then_ops, else_ops)
        await asyncio.sleep(self._dice.random() * 0.02)
        return result


class Run:
    def __init__(self, loop: VirtualLoop, directory: Path, seed: int, script: Sequence[Phase]) -> None:
        clock = VirtualClock(loop)
        self.store = MisbehavingStore(clock, seed, script)
        blobs = RetryingBlobStore(
            self.store,
            ObjectStoreSettings(type="memory", request_timeout_ms=5_000, retry_count=2),
            clock=clock,
            metrics=BlobMetrics(),
            chance=random.Random(seed).random,
        )
        self.node = TierNode(directory, blobs, SETTINGS, clock=clock, wrap=lambda store: SlowMetastore(store, seed))
        self.acknowledged: dict[tuple[str, int], list[str]] = {}
        self.acked_at_s: dict[str, float] = {}
        self._loop = loop
        self._load: list[asyncio.Task[None]] = []
        loop.watch(self._is_flushing)

    def _is_flushing(self) -> bool:
        wal = getattr(getattr(self.node, "logs", None), "wal", None)
        return wal is not None and wal.unflushed_bytes > 0 and wal.failure is None

    async def start(self) -> None:
        await self.node.start()
        await self.node.topics.create("w", partitions=3, config={"retention.ms": "-1"})
        await self.node.topics.create("o", partitions=2, config={"durability": "object", "retention.ms": "-1"})
        for name, partitions in (("w", 3), ("o", 2)):
            for index in range(partitions):
                self.acknowledged[name, index] = []

    def begin_load(self) -> None:
        self._load = [asyncio.ensure_future(self._produce(*place)) for place in self.acknowledged]

    async def _produce(self, topic: str, index: int) -> None:
        partition = self.node.topics.partition(topic, index)
        acked = self.acknowledged[topic, index]
        while True:
            value = f"{topic}-{index}-{len(acked)}-" + "x" * (7 * len(acked) % 400)
            await self.node.append(partition, value)
            acked.append(value)
            self.acked_at_s[topic] = self._loop.time()
            await asyncio.sleep(1.5)

    async def end_load(self) -> None:
        for task in self._load:
            task.cancel()
        await asyncio.gather(*self._load, return_exceptions=True)

    async def await_health(self) -> None:
        """From now on the store is healthy: it all has to be uploaded, and acknowledged, within a minute."""
        assert not any(phase.start_s <= self.store.age_s < phase.end_s for phase in self.store.script)
        asked_s = self._loop.time()
        while not (self.acked_at_s.get("o", 0.0) > asked_s and self._uploaded()):
            assert self._loop.time() < asked_s + MINUTE, "uploads have not resumed"
            await asyncio.sleep(1.5)

    def _uploaded(self) -> bool:
        """Whether nothing older than two intervals waits. The load goes on."""
        since = [p.unuploaded_since_ms for p in self._partitions()]
        oldest_ms = min((each for each in since if each is not None), default=None)
        return oldest_ms is None or self.node.clock.now_ms() - oldest_ms < 2 * SETTINGS.upload_interval_ms

    def _partitions(self) -> list[PartitionLog]:
        return [self.node.topics.partition(*place) for place in self.acknowledged]

    async def check(self) -> None:
        assert not self.node.faults, self.node.faults
        await self.check_references()
        for (topic, index), acked in self.acknowledged.items():
            check_values(values_of(await read_all(self.node.topics.partition(topic, index))), acked)

    async def check_references(self) -> None:
        """Every live segment's object is there, and committed."""
        objects = {}
        for item in (await self.node.metastore.range(keys.OBJECTS)).items:
            entry = values.decode(pb.TierObject, item.value)
            objects[entry.object_key] = entry.status
        for item in (await self.node.metastore.range(keys.TOPICS)).items:
            if isinstance(keys.parse(item.key), keys.SegmentKey):
                segment = values.decode(pb.Segment, item.value)
                if segment.status == pb.IN_OBJECT_STORE:
                    assert objects[segment.object_key] == pb.COMMITTED, segment.object_key
                    assert segment.object_key not in self.store.deleted, segment.object_key
                    await self.store.head(segment.object_key)

    async def finish(self) -> None:
        """All of it again after a restart that sweeps at once, and from the bucket alone."""
        await self.await_health()
        await self.end_load()
        await self.check()
        await self.node.restart()
        await asyncio.sleep(MINUTE)
        await self.check()
        await self.node.upload()
        for (topic, index), acked in self.acknowledged.items():
            check_values(values_of(await read_bucket(self.store, topic, index)), acked)
        await self.node.stop()
        await self.store.close()


def check_values(found: list[str], acknowledged: list[str]) -> None:
    assert found[: len(acknowledged)] == acknowledged
    # One more may be there without having been acknowledged: the load was cancelled while it waited.
    assert len(found) <= len(acknowledged) + 1


def misbehave(directory: Path, seed: int, script: Sequence[Phase]) -> Run:
    """Load for as long as the script lasts, then health."""

    async def work(loop: VirtualLoop) -> Run:
        run = Run(loop, directory, seed, script)
        await run.start()
        run.begin_load()
        await asyncio.sleep(max(phase.end_s for phase in script) - run.store.age_s + 1)
        await run.finish()
        return run

    return run_virtually(work)


@pytest.mark.parametrize("status", [409, 412])
def test_conflicts_for_a_minute_lose_nothing_and_uploads_resume(tmp_path: Path, status: int) -> None:
    run = misbehave(tmp_path, 1, [Phase(10, 70, 0.4, (status,), (Request.CREATE, Request.PUT))])
    assert run.store.counts.wrong[status] > 10


WRONG_BODIES: tuple[Answer, ...] = (SHORT, LONG, FLIPPED)


def any_misbehaviour(seed: int, *, minutes: int) -> list[Phase]:
    """A phase of up to eighty seconds every ninety, each with a share and a mixture of its own."""
    dice = random.Random(seed)
    script: list[Phase] = []
    for number, start_s in enumerate(range(10, minutes * 60, 90), seed):
        kinds: tuple[tuple[tuple[Answer, ...], tuple[Request, ...]], ...] = (
            (STATUSES, tuple(Request)),
            ((LOST, LATE, SILENT), WRITES),
            (WRONG_BODIES, (Request.GET,)),
            ((*STATUSES, LOST, LATE, SILENT, *WRONG_BODIES), tuple(Request)),
            ((dice.choice(STATUSES),), (dice.choice(list(Request)),)),
        )
        answers, requests = kinds[number % len(kinds)]
        share = dice.choice([0.1, 0.4, 0.9, 1.0])
        script.append(Phase(start_s, start_s + dice.randrange(20, 80), share, answers, requests))
    return script


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_misbehaviour_loses_nothing_and_uploads_resume(tmp_path: Path, seed: int) -> None:
    run = misbehave(tmp_path, seed, any_misbehaviour(seed, minutes=6))
    assert sum(run.store.counts.wrong.values()) > 20


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(100, 110))
def test_hours_of_misbehaviour_lose_nothing(tmp_path: Path, seed: int) -> None:
    run = misbehave(tmp_path, seed, any_misbehaviour(seed, minutes=360))
    print(f"seed {seed}: {run.store.counts.requests} requests, {sum(run.store.counts.wrong.values())} went wrong")
