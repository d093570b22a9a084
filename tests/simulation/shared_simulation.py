"""One seed of several brokers: a load and faults, then health, then every promise checked."""

import asyncio
from typing import Final

from tests.simulation.checkers import Ledger
from tests.simulation.client import Client, Refused
from tests.simulation.cluster import World
from tests.simulation.faults import KIB, Options
from tests.simulation.shared import (
    PARTITIONS,
    PLACES,
    TOPICS,
    SharedFaults,
    SharedMachine,
    SharedScene,
    leader,
    shared_actors,
    shared_readers,
    started_cluster,
)
from tests.simulation.shared_transactions import TXN_TOPICS, transactional_actors, verify_transactions
from tests.simulation.simulation import Result, is_in_time, played
from tests.support.checker import Place
from tests.support.tier_node import read_bucket

from headrace.errors import NotFound
from headrace.records.record import Record

SECONDS: Final = (6.0, 16.0)


def simulate_shared(seed: int) -> Result:
    return played(seed, shared_options, _play)


def shared_options(world: World) -> Options:
    chance = world.source("options")
    kinds = [kind for kind in SharedFaults.KINDS if chance.random() < 0.4]
    return Options(
        seed=world.seed,
        seconds=chance.uniform(*SECONDS),
        kinds=kinds or ["kill"],
        pause_s=chance.choice((1.0, 3.0)),
        is_one_machine=chance.random() < 0.75,
        settings={
            "wal.capacity.bytes": str(4096 * KIB),
            "cache.write.size.bytes": str(KIB * KIB),
            "cache.read.size.bytes": str(8 * KIB * KIB),
            "tier.cache.disk.bytes": "0",
            "tier.read.ahead.bytes": "0",
            "tier.sweep.interval.ms": str(chance.choice((400, 1500))),
            "tier.grace.ms": str(chance.choice((200, 3000))),
            "tier.compact.sources": str(chance.choice((2, 4))),
            "tier.snapshot.interval.ms": str(chance.choice((500, 5000))),
            "object_store.request.timeout.ms": "5000",
            "object_store.retry.count": "2",
            "object_store.circuit.open.ms": "500",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "auto.create.topics.enable": "false",
            "tier.upload.interval.ms": str(chance.choice((100, 1000, 60_000))),
        },
    )


async def _play(world: World, options: Options, ledger: Ledger) -> None:
    machines, towers = await started_cluster(
        world, options.settings, brokers=3, controllers=2, is_one_machine=options.is_one_machine
    )
    try:
        await _play_on(
            world,
            options,
            ledger,
            SharedScene(world, machines, ledger),
            SharedFaults(world, machines, towers, options.kinds, options.pause_s),
        )
    finally:
        for tower in towers:
            tower.discard()


async def _play_on(world: World, options: Options, ledger: Ledger, scene: SharedScene, faults: SharedFaults) -> None:
    if not await is_in_time(created(scene), ledger, "the first start"):
        return
    writers = [*shared_actors(scene), *transactional_actors(scene)]
    writing = [asyncio.ensure_future(actor.live()) for actor in writers]
    reading = [asyncio.ensure_future(actor.live()) for actor in shared_readers(scene)]
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
    if not await is_in_time(verified(scene), ledger, "reading everything"):
        return
    if await is_in_time(verify_transactions(scene), ledger, "the end of every transaction"):
        await is_in_time(stopped(scene), ledger, "the last stop")


async def created(scene: SharedScene) -> None:
    while True:
        try:
            machine = scene.machines[0]
            client = await Client("creator").connect(scene.world.network, machine.address)
            try:
                for name, configs in {**TOPICS, **TXN_TOPICS}.items():
                    await client.create_topic(name, PARTITIONS, configs)
                return
            finally:
                client.close()
        except (OSError, TimeoutError, Refused) as error:
            scene.world.note("creator", str(error))
        await asyncio.sleep(0.2)


async def verified(scene: SharedScene) -> None:
    for place in PLACES:
        scene.logs[place] = await _read_all(scene, place)
        scene.ledger.verify_log(place, scene.logs[place])


async def _read_all(scene: SharedScene, place: Place) -> list[Record]:
    number = 0
    while True:
        number += 1
        try:
            asked = scene.machines[number % len(scene.machines)]
            client = await Client("verifier").connect(scene.world.network, asked.address)
            try:
                address = await leader(client, place)
            finally:
                client.close()
            client = await Client("verifier").connect(scene.world.network, address)
            try:
                return await client.read_all(*place)
            finally:
                client.close()
        except (OSError, TimeoutError, Refused) as error:
            scene.world.note("verifier", str(error))
        await asyncio.sleep(0.2)


async def stopped(scene: SharedScene) -> None:
    """The bucket alone tells the same as the brokers did."""
    for machine in scene.machines:
        machine.is_wanted = False
        await machine.stop()
    for place, records in scene.logs.items():
        scene.ledger.verify_bucket(place, await _read_bucket(scene.machines[0], *place), records)


async def _read_bucket(machine: SharedMachine, topic: str, partition: int) -> list[Record]:
    try:
        return await read_bucket(machine.bucket.copy(), topic, partition)
    except NotFound:
        return []
