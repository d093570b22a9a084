"""The log is the same whatever the store, the clock and kill -9 do to the tier.

Each run draws operations, faults and kill points from one seed. A model keeps what was acknowledged; after every step
the whole log is read as a consumer would and compared with it, and at the end the bucket alone must tell the same.
"""

import contextlib
import random
from pathlib import Path

import msgspec
import pytest
from tests.support.metastores import ManualClock
from tests.support.simulated_store import Fuse, FusedMetastore, Killed, SimulatedStore
from tests.support.tier_node import QUIET, TierNode, read_all, read_bucket, values_of

from headrace.errors import HeadraceError, StoreUnavailable
from headrace.records.record import Record

HOUR = 3_600_000
SETTINGS = msgspec.structs.replace(
    QUIET, grace_ms=HOUR, compact_sources=3, read_ahead_bytes=0, upload_stream_bytes=3000
)


class Run:
    def __init__(self, directory: Path, seed: int, *, fault_rate: float) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock(time_ms=100 * HOUR)
        self.fuse = Fuse()
        self.store = SimulatedStore(self.clock, self.dice, fuse=self.fuse)
        self.fault_rate = fault_rate
        self.node = TierNode(
            directory,
            self.store,
            SETTINGS,
            clock=self.clock,
            is_running_tier=False,
            wrap=lambda metastore: FusedMetastore(metastore, self.fuse),
        )
        self.acknowledged: list[list[str]] = []
        self.newest: dict[str, str] = {}
        """Of the compacted topic: the last value of each key."""
        self.keyed: dict[int, str] = {}
        """Of the compacted topic: every value by offset."""
        self.produced = 0
        self.kills = 0

    async def start(self) -> None:
        await self.node.start()
        await self.node.topics.create("t", partitions=3, config={"retention.ms": "-1"})
        await self.node.topics.create("k", partitions=1, config={"cleanup.policy": "compact"})
        self.acknowledged = [[] for _ in range(3)]

    async def step(self) -> None:
        self.clock.advance(self.dice.randrange(HOUR))
        operation = self.dice.choice(
            [
                self.produce,
                self.produce,
                self.produce_keys,
                self.upload,
                self.upload,
                self.merge,
                self.compact_keys,
                self.sweep,
                self.fold,
                self.delete,
            ]
        )
        self.store.fault_rate = self.fault_rate
        self.fuse.renew(self.dice.randrange(12) if self.dice.random() < 0.4 else None)
        try:
            with contextlib.suppress(StoreUnavailable):
                await operation()
        except BaseException as error:
            if not _is_kill(error):
                raise
            await self.crash()
        self.store.fault_rate = 0.0
        self.fuse.renew()
        await self.check()

    async def produce(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            index = self.dice.randrange(3)
            values = [f"{self.produced + n}" * self.dice.choice([1, 300]) for n in range(self.dice.randrange(1, 4))]
            await self.node.append(self.node.topics.partition("t", index), *values)
            self.produced += len(values)
            self.acknowledged[index] += values

    async def produce_keys(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            key, value = self.dice.choice("abcde"), f"{self.produced}"
            appended = await self.node.append(self.node.topics.partition("k", 0), value, key=key)
            self.produced += 1
            self.newest[key] = value
            self.keyed[appended.base_offset] = value

    async def compact_keys(self) -> None:
        await self.node.tier.key_compactor.run_once(is_forced=True)

    async def upload(self) -> None:
        await self.node.tier.uploader.upload_round()
        await self.node.tier.ledger.write_pending()

    async def merge(self) -> None:
        await self.node.tier.compactor.run_once()

    async def sweep(self) -> None:
        await self.node.tier.sweeper.sweep()
        await self.node.tier.sweeper.collect_orphans()

    async def fold(self) -> None:
        await self.node.tier.ledger.write_pending()
        await self.node.tier.ledger.fold()

    async def delete(self) -> None:
        partition = self.node.topics.partition("t", self.dice.randrange(3))
        target = self.dice.randrange(partition.log_start, partition.high_watermark + 1)
        await self.node.topics.delete_records("t", partition.index, target)

    async def crash(self) -> None:
        self.kills += 1
        self.store.fault_rate = 0.0
        self.fuse.renew()
        await self.node.crash()
        await self.node.start()

    async def check(self) -> None:
        for partition, expected in zip(self.node.topics.get("t").partitions, self.acknowledged, strict=True):
            records = await read_all(partition)
            assert [record.offset for record in records] == list(range(partition.log_start, len(expected)))
            assert values_of(records) == expected[partition.log_start :]

        self.check_keys(await read_all(self.node.topics.partition("k", 0)))

    def check_keys(self, records: list[Record]) -> None:
        """Offsets rise and are those once given; nothing is changed; the newest of each key is there."""
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert values_of(records) == [self.keyed[offset] for offset in offsets]
        latest = {(record.key or b"").decode(): (record.value or b"").decode() for record in records}
        assert latest == self.newest

    async def check_bucket(self) -> None:
        self.fuse.renew()
        await self.upload()
        await self.sweep()
        await self.node.tier.ledger.write_pending()
        for index, expected in enumerate(self.acknowledged):
            records = await read_bucket(self.store, "t", index)
            start = self.node.topics.partition("t", index).log_start
            assert values_of(records) == expected[start:]
        if self.newest:
            self.check_keys(await read_bucket(self.store, "k", 0))


def _is_kill(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_kill, error.exceptions))
    return isinstance(error, Killed)


@pytest.mark.requirement("R3.46", "R3.6", "R3.117")
@pytest.mark.parametrize("seed", range(12))
async def test_log_is_the_same_after_any_interleaving(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed, fault_rate=0.3)
    await run.start()
    for _ in range(60):
        await run.step()
    await run.check_bucket()
    await run.node.stop()


@pytest.mark.requirement("R3.46")
async def test_a_kill_at_every_step_of_an_upload_loses_and_repeats_nothing(tmp_path: Path) -> None:
    await _kill_at_every_step(tmp_path, "upload")


async def test_a_kill_at_every_step_of_a_merge_loses_and_repeats_nothing(tmp_path: Path) -> None:
    await _kill_at_every_step(tmp_path, "merge")


async def test_a_kill_at_every_step_of_key_compaction_loses_and_repeats_nothing(tmp_path: Path) -> None:
    await _kill_at_every_step(tmp_path, "compact_keys")


@pytest.mark.slow
async def test_a_kill_at_every_step_of_retention_and_deletion_loses_nothing(tmp_path: Path) -> None:
    await _kill_at_every_step(tmp_path, "sweep")


async def _kill_at_every_step(tmp_path: Path, operation: str) -> None:
    """Prepare some work, kill after n steps of it, recover, check; for n = 0, 1, ... until the work completes."""
    run = Run(tmp_path, 1, fault_rate=0.0)
    await run.start()
    steps = 0
    while True:
        # A compaction reads everything there is: more of it each time would outrun the steps.
        for _ in range(4 if steps == 0 or operation != "compact_keys" else 0):
            await run.produce()
            await run.produce_keys()
            if operation != "upload":
                await run.upload()
        if operation == "sweep":
            await run.merge()
            await run.delete()
            run.clock.advance(2 * HOUR)
        run.fuse.renew(steps)
        try:
            await getattr(run, operation)()
        except BaseException as error:
            if not _is_kill(error):
                raise
            await run.crash()
            await run.check()
            steps += 1
            continue
        break
    run.fuse.renew()
    await run.check()
    await run.check_bucket()
    await run.node.stop()
    assert steps >= 4


async def test_store_down_and_back_loses_nothing(tmp_path: Path) -> None:
    """The store is gone for many rounds; records stay in the WAL, are readable, and leave once it is back."""
    run = Run(tmp_path, 3, fault_rate=0.0)
    await run.start()
    run.store.is_down = True
    for _ in range(10):
        await run.produce()
        assert not await run.node.tier.uploader.upload_round()
        await run.check()
    with pytest.raises(HeadraceError):
        await run.fold()
    run.store.is_down = False
    await run.check_bucket()
    assert all(p.uploaded_end == p.end_offset for p in run.node.topics.get("t").partitions)
    await run.node.stop()
