"""Modules in object storage and the metastore: numbered, immutable, and never half there, whatever dies in between."""

from collections.abc import AsyncIterator

import pytest
from tests.support.metastores import ManualClock

from headrace.blob.memory import MemoryBlobStore
from headrace.chance import SYSTEM_CHANCE
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Delete, only
from headrace.control.values import WASM_MODULE_ID
from headrace.errors import Corrupted, Invalid, InvalidName, NotEmpty, ResourceNotFound, StoreUnavailable
from headrace.transforms.modules import GRACE_MS, OBJECTS, Modules


class World:
    def __init__(self, cluster: Cluster, clock: ManualClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.blobs = MemoryBlobStore(clock)
        self.modules = Modules(cluster, self.blobs, clock, SYSTEM_CHANCE)

    async def objects(self) -> list[str]:
        return [info.key async for info in self.blobs.list(OBJECTS)]

    async def assign(self, topic: str, module_id: str) -> None:
        await self.cluster.set_config(topic, lambda overrides: {**overrides, WASM_MODULE_ID: module_id})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    metastore, clock = await EmbeddedMetastore.open(), ManualClock()
    cluster = await Cluster.load(metastore, clock)
    await cluster.register("b1", pb.BrokerRegistration(host="localhost"))
    yield World(cluster, clock)
    await metastore.close()


@pytest.mark.requirement("R3.29", "R3.75")
async def test_bytes_are_in_the_bucket_and_the_rest_in_the_metastore(world: World) -> None:
    module = await world.modules.add("scrub", b"code", takes_batches=True)
    stored = await world.cluster.store.get("/wasm/modules/scrub_v1")
    assert stored is not None
    shown = values.show(stored.key, stored.value)
    assert (shown["name"], shown["version"], shown["object_key"]) == ("scrub", "v1", module.object_key)
    assert bytes(await world.blobs.get(module.object_key)) == b"code"
    assert await world.modules.code(module) == b"code"
    assert await world.modules.all() == [module]


async def test_versions_are_numbered_and_never_given_twice(world: World) -> None:
    ids = [(await world.modules.add("scrub", b"code %d" % number, takes_batches=True)).id for number in range(11)]
    assert ids == [f"scrub_v{number}" for number in range(1, 12)]
    assert [each.id for each in await world.modules.all()] == ids
    await world.modules.remove("scrub_v11")
    assert (await world.modules.add("scrub", b"other", takes_batches=True)).id == "scrub_v12"


async def test_the_same_bytes_are_the_same_version(world: World) -> None:
    first = await world.modules.add("scrub", b"code", takes_batches=True)
    assert await world.modules.add("scrub", b"code", takes_batches=True) == first
    assert (await world.modules.add("other", b"code", takes_batches=True)).id == "other_v1"


@pytest.mark.requirement("R3.22", "R3.76")
async def test_a_topic_is_given_modules_that_are_there_and_no_others(world: World) -> None:
    await world.modules.add("scrub", b"code", takes_batches=True)
    await world.cluster.create_topic("orders", partitions=1, overrides={})
    with pytest.raises(Invalid, match="no Wasm module 'scrub_v2'"):
        await world.assign("orders", "scrub_v2")
    with pytest.raises(Invalid, match="no Wasm module"):
        await world.cluster.create_topic("other", partitions=1, overrides={WASM_MODULE_ID: "nobody_v1"})
    await world.assign("orders", "scrub_v1")
    stored = await world.cluster.store.get(keys.topic_config("orders"))
    assert stored is not None
    assert values.show(stored.key, stored.value)["wasm_module_id"] == "scrub_v1"
    assert world.modules.topics_of("scrub_v1") == ["orders"]


async def test_a_module_that_a_topic_has_stays(world: World) -> None:
    module = await world.modules.add("scrub", b"code", takes_batches=True)
    await world.cluster.create_topic("orders", partitions=1, overrides={WASM_MODULE_ID: module.id})
    with pytest.raises(NotEmpty, match="orders"):
        await world.modules.remove(module.id)
    assert not (await world.modules.get(module.id)).is_leaving
    await world.assign("orders", "")
    await world.modules.remove(module.id)
    assert await world.objects() == []
    with pytest.raises(ResourceNotFound):
        await world.modules.get(module.id)


async def test_nobody_gets_a_module_whose_removal_has_begun(world: World) -> None:
    """A removal dies after its mark: the module stays marked, no topic can get it, and the removal can be ended."""
    module = await world.modules.add("scrub", b"code", takes_batches=True)
    await world.cluster.create_topic("orders", partitions=1, overrides={})

    async def dies(revision: int) -> None:
        raise StoreUnavailable("killed here")

    caught_up, world.cluster.caught_up = world.cluster.caught_up, dies  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await world.modules.remove(module.id)
    world.cluster.caught_up = caught_up  # type: ignore[method-assign]
    assert (await world.modules.get(module.id)).is_leaving
    with pytest.raises(Invalid, match="is being removed"):
        await world.assign("orders", module.id)
    await world.modules.remove(module.id)
    assert await world.modules.all() == []


async def test_a_topic_that_is_given_the_module_meanwhile_keeps_it(world: World) -> None:
    """Between reading the entry and writing the topic's config the removal marks the module: one of the two fails."""
    module = await world.modules.add("scrub", b"code", takes_batches=True)
    await world.cluster.create_topic("orders", partitions=1, overrides={})
    guards = world.cluster._module_guards

    async def overtaken(module_id: str):  # type: ignore[no-untyped-def]
        found = await guards(module_id)
        world.cluster._module_guards = guards  # type: ignore[method-assign]
        await world.modules.remove(module.id)
        return found

    world.cluster._module_guards = overtaken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="races"):
        await world.assign("orders", module.id)
    assert world.cluster.topics.get("orders").overrides.get(WASM_MODULE_ID, "") == ""


async def test_garbage_is_what_no_entry_names_and_is_old_enough(world: World) -> None:
    kept = await world.modules.add("scrub", b"code", takes_batches=True)
    orphan = await world.modules.add("orphan", b"code", takes_batches=True)
    # As an upload leaves it that died before its entry, or a removal that died behind it.
    await world.cluster.store.txn((), (Delete(only(keys.wasm_module(orphan.id))),))
    assert await world.modules.collect() == 0, "it may be an upload under way"
    world.clock.advance(GRACE_MS + 1)
    fresh = await world.modules.add("fresh", b"code", takes_batches=True)
    assert await world.modules.collect() == 1
    assert await world.objects() == sorted([kept.object_key, fresh.object_key])


async def test_bytes_that_are_not_those_of_the_upload_are_not_run(world: World) -> None:
    module = await world.modules.add("scrub", b"code", takes_batches=True)
    await world.blobs.put(module.object_key, [b"evil"])
    with pytest.raises(Corrupted, match="not what was uploaded"):
        await world.modules.code(module)


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "a/b", "../x", "x" * 101, "ä"])
async def test_a_name_that_no_key_can_hold_is_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidName):
        await world.modules.add(name, b"code", takes_batches=True)
