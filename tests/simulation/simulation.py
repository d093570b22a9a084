"""One seed: a load and faults on a simulated machine, then health, then every promise checked."""

import asyncio
import gc
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from tests.simulation.checkers import Ledger
from tests.simulation.client import READ_COMMITTED, Client, Refused
from tests.simulation.cluster import Machine, World
from tests.simulation.faults import Faults, Options, options_of
from tests.simulation.load import PARTITIONS, TOPICS, TXN_GROUP, TXN_TOPIC, WAL_TOPIC, Scene, actors, readers
from tests.simulation.loop import Stuck
from tests.support.checker import Place
from tests.support.tier_node import read_bucket

from headrace.broker import ceilings
from headrace.errors import NotFound
from headrace.log import store as log_store
from headrace.records.record import Record

CEILING_STEP: Final = 64
PATIENCE_S: Final = 60.0
"""Virtual: healed, everything must finish within it."""
PLACES: Final[list[Place]] = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


@dataclass
class Result:
    options: Options
    violations: list[str]
    trace: list[str]
    acked: int
    virtual_s: float
    cpu_s: float

    def __str__(self) -> str:
        broken = "".join(f"\n  {shortened(each)}" for each in self.violations)
        return f"{self.options}\n{len(self.violations)} broken promises{broken}\nreplay: make simulate SEED={self.options.seed}"

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


Play = Callable[[World, Options, Ledger], Coroutine[Any, Any, None]]


def simulate(seed: int) -> Result:
    """Play one seed of one node."""
    return played(seed, options_of, _play)


def played(seed: int, choose: Callable[[World], Options], play: Play) -> Result:
    """What a node would need hours or millions of records for is smaller here."""
    with (
        mock.patch.multiple(log_store, CEILING_STEP=CEILING_STEP),
        mock.patch.multiple(ceilings, CEILING_STEP=CEILING_STEP),
    ):
        return _played(seed, choose, play)


def _played(seed: int, choose: Callable[[World], Options], play: Play) -> Result:
    started_s = time.process_time()
    world = World(seed)
    options = choose(world)
    ledger = Ledger(seed)
    gc.collect()  # What earlier seeds have left: while frozen, it would never be looked at.
    gc.disable()  # When the collector runs depends on what ran before in this process.
    gc.freeze()
    try:
        with world.listened_to():
            asyncio.set_event_loop(world.loop)
            try:
                world.loop.run_until_complete(play(world, options, ledger))
            except Stuck as stuck:
                ledger.violated(f"stuck: {stuck}")
            finally:
                asyncio.set_event_loop(None)
                virtual_s = world.loop.time()
                world.close()
    finally:
        gc.unfreeze()
        gc.enable()
    violations = [*ledger.violations, *world.surprises]
    return Result(
        options, violations, world.trace, ledger.history.acked_count, virtual_s, time.process_time() - started_s
    )


async def _play(world: World, options: Options, ledger: Ledger) -> None:
    machine = Machine(world, 1, options.settings)
    machine.start()
    scene = Scene(world, machine, ledger)
    if not await is_in_time(_retried(scene, _create_topics), ledger, "the first start"):
        return
    faults = Faults(world, machine, ledger, options)
    writing = [asyncio.ensure_future(actor.live()) for actor in actors(scene)]
    reading = [asyncio.ensure_future(actor.live()) for actor in readers(scene)]
    striking = asyncio.ensure_future(faults.strike())
    try:
        await asyncio.sleep(options.seconds)
        striking.cancel()
        await faults.heal()
        scene.is_healed = True
        if not await is_in_time(asyncio.gather(*writing), ledger, "writing once healed"):
            return
        scene.is_written = True
        if not await is_in_time(asyncio.gather(*reading), ledger, "reading to the end"):
            return
    finally:
        for each in (striking, *writing, *reading):
            each.cancel()
        await asyncio.gather(striking, *writing, *reading, return_exceptions=True)
    if await is_in_time(_retried(scene, _verify_all), ledger, "reading everything"):
        await is_in_time(_verify_stopped(scene, options), ledger, "the last stop")


async def is_in_time(work: Awaitable[Any], ledger: Ledger, what: str) -> bool:
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        ledger.violated(f"not done within {PATIENCE_S:.0f} s: {what}")
        return False
    await task
    return True


async def _create_topics(client: Client, scene: Scene) -> None:
    for name, configs in TOPICS.items():
        await client.create_topic(name, PARTITIONS, configs)


async def _verify_all(client: Client, scene: Scene) -> None:
    ledger = scene.ledger
    seen: list[Record] = []
    logs = {place: await client.read_all(*place) for place in PLACES}
    for partition in range(PARTITIONS):
        seen += await client.read_all(TXN_TOPIC, partition, isolation=READ_COMMITTED)
    committed = await client.committed(TXN_GROUP, WAL_TOPIC, 0)
    for place, records in logs.items():
        ledger.verify_log(place, records)
    ledger.verify_transactions((record.value or b"" for record in seen), committed)
    scene.logs = logs


async def _verify_stopped(scene: Scene, options: Options) -> None:
    """After a clean stop the bucket tells the same as the node did, and is enough for another disk."""
    machine = scene.machine
    machine.is_wanted = False
    await machine.stop()
    for place, records in scene.logs.items():
        scene.ledger.verify_bucket(place, await _read_bucket(machine, place), records)
    if options.is_disk_lost_at_end:
        machine.disk.wipe()
    machine.is_wanted = True
    machine.start()
    await _retried(scene, _verify_all)


async def _read_bucket(machine: Machine, place: Place) -> list[Record]:
    try:
        return await read_bucket(machine.bucket.copy(), *place)
    except NotFound:
        return []


async def _retried(scene: Scene, work: Callable[[Client, Scene], Awaitable[None]]) -> None:
    while True:
        try:
            client = await Client("verifier").connect(scene.world.network, scene.machine.address)
            try:
                return await work(client, scene)
            finally:
                client.close()
        except (OSError, TimeoutError):
            pass
        except Refused as refused:
            scene.world.note("verifier", str(refused))
        await asyncio.sleep(0.2)


def shortened(text: str) -> str:
    """Without the padding of values."""
    return re.sub(r"\.{9,}", "...", text)
