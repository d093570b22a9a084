"""Several brokers in a simulation: one metastore, one bucket, real controllers, and nodes that change places.

The controllers are `control/controller` as `headrace controller` builds them, each in a life of its own; what is between them
and the brokers is a network that delays, cuts and loses.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tests.simulation.bucket import SimulatedBucket, SimulatedMetastoreFile
from tests.simulation.checkers import Ledger
from tests.simulation.client import Client, Refused
from tests.simulation.cluster import DATA, PEER_PORT, Machine, World
from tests.simulation.disk import SimulatedDisk
from tests.simulation.load import (
    ANY_TIME,
    Actor,
    Committer,
    Consumer,
    IdempotentProducer,
    PlainProducer,
    Scene,
    TransactionalProducer,
)
from tests.simulation.loop import Life, SimulatedClock
from tests.simulation.network import Address
from tests.support.checker import Place

from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.config.settings import NodeSettings
from headrace.control import keys
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, Registered
from headrace.control.controller.driver import Controller
from headrace.control.controller.machine import DEFAULT_TIMING
from headrace.control.controller.machine import Machine as ControllerMachine
from headrace.control.controller.office import Office
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import (
    PAGE_KEYS,
    Changes,
    Compare,
    KeyRange,
    KeyValue,
    Lease,
    LeaseId,
    Metastore,
    Op,
    RangeResult,
    Read,
    TxnLimits,
    TxnResult,
)
from headrace.errors import Concurrent, HeadraceError, NotReady, OutcomeUnknown, StaleEpoch, Unavailable
from headrace.node.parts import NodeParts
from headrace.tier.plans import Numbered
from headrace.tier.sequencer import Committed, Sequencer, decode_commit, encode_commit
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

T = TypeVar("T")

TOPIC: Final = "on-objects"
WAL_TOPIC: Final = "on-wal"
TOPICS: Final = {
    TOPIC: {"durability": "object", **ANY_TIME},
    WAL_TOPIC: {"durability": "wal", **ANY_TIME},
}
PARTITIONS: Final = 3
PLACES: Final = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
_CALL_S: Final = (0.0005, 0.004)
_SILENCE_S: Final = 2.0
_BEAT_S: Final = 0.3
LIMITS: Final = TxnLimits(ops_max=128, bytes_max=1024 * 1024)


class SharedStore:
    """The one metastore behind everybody. It runs outside of all lives, as an etcd of other machines does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.file = SimulatedMetastoreFile(world.source("metastore"))
        self.store: EmbeddedMetastore

    async def open(self) -> None:
        keyspace = self.file.load(keys.EXPENDABLE)
        writer = ThreadPoolExecutor(max_workers=1)
        self.store = EmbeddedMetastore(self.file, keyspace, writer=writer, clock=SimulatedClock(self.world.loop))


class RemoteStore:
    """The same from one machine: requests and replies take their time, are cut off, and get lost."""

    def __init__(self, shared: SharedStore, name: str) -> None:
        self._shared = shared
        self.chance = shared.world.source(f"{name} to the metastore")
        self.loss_rate = 0.0
        self.is_cut = False
        self.txn_limits = LIMITS

    @property
    def _store(self) -> Metastore:
        return self._shared.store

    async def get(self, key: str) -> KeyValue | None:
        return await self._read(lambda: self._store.get(key))

    async def range(self, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False) -> RangeResult:
        return await self._read(lambda: self._store.range(keys, limit=limit, is_descending=is_descending))

    async def pages(self, keys: KeyRange, *, limit: int = PAGE_KEYS) -> AsyncIterator[RangeResult]:
        yield await self.range(keys)

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        def run() -> Awaitable[TxnResult]:
            return self._store.txn(compares, then_ops, else_ops)

        is_reading = all(isinstance(op, Read) for op in (*then_ops, *else_ops))
        return await (self._read(run) if is_reading else self._write(run))

    async def grant_lease(self, ttl_ms: int) -> Lease:
        return await self._write(lambda: self._store.grant_lease(ttl_ms))

    async def keep_alive(self, lease: LeaseId) -> int:
        return await self._read(lambda: self._store.keep_alive(lease))

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._write(lambda: self._store.revoke_lease(lease))

    async def watch(self, keys: KeyRange, *, from_revision: int, without: str = "") -> AsyncIterator[Changes]:
        async for changes in self._store.watch(keys, from_revision=from_revision, without=without):
            await self._delay()
            while self.is_cut:
                await asyncio.sleep(0.1)
            yield changes

    async def close(self) -> None:
        pass

    async def _read(self, work: Callable[[], Awaitable[T]]) -> T:
        await self._delay()
        if self.is_cut or self.chance.random() < self.loss_rate:
            await asyncio.sleep(_SILENCE_S)
            raise Unavailable("no controller answers")
        found = await self._outside(work)
        await self._delay()
        return found

    async def _write(self, work: Callable[[], Awaitable[T]]) -> T:
        await self._delay()
        if self.is_cut or self.chance.random() < self.loss_rate / 2:
            await asyncio.sleep(_SILENCE_S)
            raise OutcomeUnknown("the request was lost")
        found = await self._outside(work)
        await self._delay()
        if self.is_cut or self.chance.random() < self.loss_rate / 2:
            await asyncio.sleep(_SILENCE_S)
            raise OutcomeUnknown("the reply was lost")
        return found

    async def _outside(self, work: Callable[[], Awaitable[T]]) -> T:
        """What was sent is carried out, whatever becomes of the sender."""
        loop = self._shared.world.loop

        async def run() -> T:
            return await work()

        return await asyncio.shield(loop.create_task(run(), context=loop.outside.copy()))

    async def _delay(self) -> None:
        await asyncio.sleep(self.chance.uniform(*_CALL_S))


class Tower:
    """A controller, in a life of its own."""

    def __init__(self, shared: SharedStore, number: int) -> None:
        self.world = shared.world
        self.name = f"controller-{number}"
        self.remote = RemoteStore(shared, self.name)
        self.chance = self.world.source(self.name)
        self.life: Life | None = None
        self.controller: Controller | None = None
        self.sequencer: Sequencer | None = None
        self.lives: list[Life] = []
        self.is_gone: Callable[[str], bool] = lambda broker: False

    def start(self) -> None:
        life = self.life = Life(self.name, self.chance)
        self.lives.append(life)
        self.world.loop.create_task_in(life, self._run(), name=self.name)

    async def _run(self) -> None:
        clock = SimulatedClock(self.world.loop)
        while True:
            try:
                cluster = await Cluster.load(self.remote, clock, chance=self.chance)
                office = Office(self.remote, controller_id=self.name, endpoint=self.name, clock=clock)
                machine = ControllerMachine(DEFAULT_TIMING)
                sequencer = Sequencer(self.remote, office.guard, on_lost=office.lost)
                controller = Controller(
                    cluster, machine, office, clock=clock, probe=self._is_refused, beside=[sequencer.run]
                )
                self.sequencer = sequencer
                await controller.read()
                self.controller = controller
                await controller.run()
            except HeadraceError as error:
                self.world.note(self.name, f"begins anew: {error}")
            self.controller = None
            await asyncio.sleep(0.2)

    async def _is_refused(self, registration: pb.BrokerRegistration) -> bool:
        await asyncio.sleep(0.005)
        return self.is_gone(registration.host)

    def kill(self) -> None:
        if self.life is None:
            return
        self.world.note(self.name, "killed")
        self.life.is_dead = True
        self.life = self.controller = None
        self.world.loop.call_later(self.chance.uniform(0.5, 4.0), self.start, context=self.world.loop.outside)

    def discard(self) -> None:
        for life in self.lives:
            life.is_dead = True
            life.bury()


@dataclasses.dataclass
class House:
    """A computer with the disk that its brokers share, and one plug."""

    name: str
    disk: SimulatedDisk
    machines: list["SharedMachine"] = dataclasses.field(default_factory=list)

    def cut_power(self) -> None:
        for machine in self.machines:
            machine.lose_power()
        self.disk.lose_power()


class SharedMachine(Machine):
    """A broker of several: the bucket and the metastore are everybody's, its disk is its own."""

    def __init__(
        self,
        world: World,
        number: int,
        options: dict[str, str],
        shared: SharedStore,
        bucket: SimulatedBucket,
        towers: list[Tower],
        house: "House | None" = None,
    ) -> None:
        data = DATA / f"node-{number}"
        super().__init__(world, number, {**options, "data.dir": str(data), "wal.path": str(data / "wal")})
        self.bucket = bucket
        self._ring_path = data / "wal" / "ring"
        self._house = house or House(f"house of {self.name}", self.disk)
        self._house.machines.append(self)
        self.disk = self._house.disk
        self._answered_ms = 0
        self.remote = RemoteStore(shared, self.name)
        self._towers = towers
        self._registered: Registered | None = None
        self._beating: asyncio.Future[None] | None = None

    def _parts(self) -> NodeParts:
        return dataclasses.replace(
            super()._parts(),
            metastore=self._open_shared,
            register=self._register,
            sequence=self._sequence,
            is_shared=True,
            silent_ms=lambda: self.clock.monotonic_ms() - self._answered_ms,
        )

    def cut_power(self) -> None:
        self._house.cut_power()

    def lose_power(self) -> None:
        """The process is gone; what becomes of the disk is the house's to say."""
        life = self.life
        self.world.note(self.name, "power cut")
        if life is not None:
            self._ended(life, lost_after_s=self.chance.uniform(0.5, 5.0))
            for job in list(life.jobs):
                self.disk.interrupt(job.work)

    async def _sequence(self, wanted: Numbered) -> Committed:
        """As `Membership.commit_object`: whoever hears nothing asks the next, and may have been heard."""
        for _ in range(20):
            for tower in self._towers:
                if tower.controller is not None and tower.controller.office.is_held and not self.remote.is_cut:
                    with contextlib.suppress(NotReady):
                        return await self._ask_for_number(tower, decode_commit(encode_commit(wanted)))
            await asyncio.sleep(0.1)
        raise NotReady("no controller is active")

    async def _ask_for_number(self, tower: Tower, wanted: Numbered) -> Committed:
        sequencer = tower.sequencer
        assert sequencer is not None
        chance = self.remote.chance
        if chance.random() < self.remote.loss_rate / 2:
            raise NotReady("the request was lost")
        try:
            done = await self._ask(tower, lambda controller: sequencer.commit(wanted))
        except (NotReady, Concurrent):
            raise
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        if chance.random() < self.remote.loss_rate / 2:
            raise OutcomeUnknown("the reply was lost")
        return done

    async def _open_shared(self, settings: NodeSettings, *, clock: Clock) -> Metastore:
        return self.remote

    def _open_blobs(self, settings: ObjectStoreSettings, clock: Clock) -> BlobStore:
        return self.bucket

    async def _register(self, cluster: Cluster, name: str, endpoint: pb.BrokerRegistration) -> Registered:
        endpoint.host = self.address[0]
        endpoint.machine_id = self._house.name
        endpoint.wal_path = str(self._ring_path)
        sent_ms = self.clock.monotonic_ms()
        entered = await self._ask_active(
            lambda controller: controller.register(name, endpoint, cluster_id=controller.cluster_id)
        )
        cluster.enter(entered.fence)
        self._registered = entered.registered
        self._answered_ms = sent_ms
        self._beating = asyncio.ensure_future(self._beat_always(entered.registered.broker_epoch))
        return entered.registered

    async def _ask_active(self, call: Callable[[Controller], Awaitable[T]]) -> T:
        for _ in range(100):
            for tower in self._towers:
                if tower.controller is not None and not self.remote.is_cut and tower.controller.office.is_held:
                    try:
                        return await self._ask(tower, call)
                    except Unavailable:
                        continue
            await asyncio.sleep(0.1)
        raise NotReady("no controller is active")

    async def _ask(self, tower: Tower, call: Callable[[Controller], Awaitable[T]]) -> T:
        """Carried out in the controller's life: it may end in the middle, and then nobody answers."""
        life, controller = tower.life, tower.controller
        if life is None or controller is None or self.remote.is_cut:
            raise Unavailable("the controller is not there")
        answer: asyncio.Future[T] = self.world.loop.create_future()

        async def run() -> None:
            try:
                found = await call(controller)
            except HeadraceError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(found)

        await asyncio.sleep(0.001)
        self.world.loop.create_task_in(life, run(), name="asked")
        try:
            return await asyncio.wait_for(answer, 2.0)
        except TimeoutError:
            raise Unavailable("the controller does not answer") from None

    async def _beat_always(self, epoch: int) -> None:
        life = self.life
        while self.life is life:
            ready = self._addresses() if self.is_ready else None
            await asyncio.gather(*(self._beat(tower, epoch, ready) for tower in self._towers))
            await asyncio.sleep(_BEAT_S)

    async def _beat(self, tower: Tower, epoch: int, ready: pb.BrokerRegistration | None) -> None:
        sent_ms = self.clock.monotonic_ms()
        try:
            state = await self._ask(
                tower,
                lambda controller: controller.heartbeat(
                    self.name, epoch, cluster_id=controller.cluster_id, ready=ready
                ),
            )
        except HeadraceError:
            return
        is_present = self._registered is not None and self._registered.broker_epoch == epoch
        if state is not None and is_present and tower.controller is not None and tower.controller.office.is_held:
            self._answered_ms = max(self._answered_ms, sent_ms)
        if state is None and is_present and self.node is not None and self.on_fault is not None:
            self.on_fault(StaleEpoch("fenced"))

    def _addresses(self) -> pb.BrokerRegistration:
        host, port = self.address
        ring_id = self.node.ring_id if self.node is not None else b""
        return pb.BrokerRegistration(
            host=host,
            port_kafka=port,
            port_peer=PEER_PORT,
            advertised={"kafka": f"{host}:{port}"},
            ring_id=ring_id,
        )

    async def leave(self) -> None:
        registered, life, node = self._registered, self.life, self.node
        if registered is None or life is None or node is None:
            return
        handing_over = self.world.loop.create_task_in(life, node.hand_over(), name=f"{self.name} hands over")
        try:
            for _ in range(200):
                left = await self._ask_active(
                    lambda controller: controller.leave(
                        self.name, registered.broker_epoch, cluster_id=controller.cluster_id, is_gone=False
                    )
                )
                if not left:
                    return
                await asyncio.sleep(0.05)
        finally:
            handing_over.cancel()


class SharedScene(Scene):
    is_shared = True

    def __init__(self, world: World, machines: list[SharedMachine], ledger: Ledger) -> None:
        super().__init__(world, machines[0], ledger)
        self.machines = machines
        self._chance = world.source("routes")

    def any_machine(self) -> SharedMachine:
        return self._chance.choice(self.machines)

    async def address_of(self, actor: Actor) -> Address:
        asked = self.any_machine()
        client = await Client(f"{actor.name} asks").connect(self.world.network, asked.address)
        try:
            if isinstance(actor, Committer):
                return await coordinator(client, actor.GROUP)
            if isinstance(actor, TransactionalProducer):
                return await coordinator(client, actor.name, key_type=1)
            if isinstance(actor, Consumer):
                place: Place = (actor.topic, actor.partitions[0])
            else:
                place = getattr(actor, "_place")  # noqa: B009
            return await leader(client, place)
        finally:
            client.close()


async def leader(client: Client, place: Place) -> Address:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=place[0])], allow_auto_topic_creation=False)
    found = await client.call(request, 9, MetadataResponse)
    brokers = {each.node_id: (each.host, each.port) for each in found.brokers}
    for topic in found.topics:
        for partition in topic.partitions:
            if partition.partition_index == place[1] and partition.leader_id in brokers:
                return brokers[partition.leader_id]
    raise Refused(f"nobody leads {place}", 5)


async def coordinator(client: Client, name: str, *, key_type: int = 0) -> Address:
    """Of a group, or with `key_type` 1 of a transactional id."""
    found = await client.call(FindCoordinatorRequest(key=name, key_type=key_type), 3, FindCoordinatorResponse)
    if found.error_code:
        raise Refused("FindCoordinator", found.error_code)
    return found.host, found.port


def shared_actors(scene: Scene, topics: Collection[str] = tuple(TOPICS)) -> list[Actor]:
    found: list[Actor] = []
    for topic, partition in (each for each in PLACES if each[0] in topics):
        found.append(PlainProducer(scene, f"plain-{topic}-{partition}", (topic, partition)))
        found.append(IdempotentProducer(scene, f"idempotent-{topic}-{partition}", (topic, partition)))
    found.append(Committer(scene, "committer", (TOPIC, 0)))
    return found


def shared_readers(scene: Scene, topics: Collection[str] = tuple(TOPICS)) -> list[Actor]:
    return [
        Consumer(scene, f"reader-{topic}-{number}", topic, partitions=[number])
        for topic, number in PLACES
        if topic in topics
    ]


async def started_cluster(
    world: World, options: dict[str, str], *, brokers: int, controllers: int, is_one_machine: bool
) -> tuple[list[SharedMachine], list[Tower]]:
    shared = SharedStore(world)
    await shared.open()
    bucket = SimulatedBucket(SimulatedClock(world.loop), world.source("bucket"))
    towers = [Tower(shared, number) for number in range(1, controllers + 1)]
    house = House("house", SimulatedDisk(world.source("disk"))) if is_one_machine else None
    machines = [
        SharedMachine(world, number, options, shared, bucket, towers, house) for number in range(1, brokers + 1)
    ]
    by_host: dict[str, SharedMachine] = {each.address[0]: each for each in machines}

    def is_gone(host: str) -> bool:
        machine = by_host.get(host)
        return machine is not None and machine.life is None

    for tower in towers:
        tower.is_gone = is_gone
        tower.start()
    for machine in machines:
        machine.start()
    return machines, towers


class SharedFaults:
    def __init__(
        self, world: World, machines: list[SharedMachine], towers: list[Tower], kinds: Sequence[str], pause_s: float
    ) -> None:
        self._world = world
        self._machines = machines
        self._towers = towers
        self._kinds = kinds
        self._pause_s = pause_s
        self._chance = world.source("faults")
        self._lasting: list[asyncio.Future[None]] = []

    async def strike(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            kind = self._chance.choice(self._kinds)
            machine = self._chance.choice(self._machines)
            self._world.note("fault", f"{kind} of {machine.name}")
            self._lasting.append(asyncio.ensure_future(self.KINDS[kind](self, machine)))

    async def heal(self) -> None:
        for each in self._lasting:
            each.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        for machine in self._machines:
            machine.remote.is_cut = False
            machine.remote.loss_rate = 0.0
            machine.slow_down(1.0)
            machine.resume()
        for tower in self._towers:
            tower.remote.is_cut = False
            tower.remote.loss_rate = 0.0
        bucket = self._machines[0].bucket
        bucket.is_down, bucket.fault_rate, bucket.slowness = False, 0.0, 1.0
        self._world.network.heal()
        self._world.note("fault", "healed")

    async def _last(self, longest_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(0.01, longest_s))

    async def kill(self, machine: SharedMachine) -> None:
        machine.kill()

    async def kill_all(self, machine: SharedMachine) -> None:
        for each in self._machines:
            each.kill()

    async def kill_controller(self, machine: SharedMachine) -> None:
        self._chance.choice(self._towers).kill()

    async def kill_both(self, machine: SharedMachine) -> None:
        machine.kill()
        for tower in self._towers:
            if tower.controller is not None and tower.controller.office.is_held:
                tower.kill()

    async def stop(self, machine: SharedMachine) -> None:
        if machine.is_ready:
            try:
                with contextlib.suppress(HeadraceError):
                    await machine.leave()
            except asyncio.CancelledError:
                machine.kill()  # Nobody who was told to stop goes on as if nothing had been said.
                raise
            await machine.stop()

    async def pause(self, machine: SharedMachine) -> None:
        machine.pause()
        await self._last(8.0)
        machine.resume()

    async def slow_disk(self, machine: SharedMachine) -> None:
        machine.slow_down(self._chance.choice((10, 100, 1000)))
        await self._last(4.0)
        machine.slow_down(1.0)

    async def cut_power(self, machine: SharedMachine) -> None:
        machine.cut_power()

    async def cut_off(self, machine: SharedMachine) -> None:
        """From the controllers; clients still reach it."""
        machine.remote.is_cut = True
        await self._last(8.0)
        machine.remote.is_cut = False

    async def lose_words(self, machine: SharedMachine) -> None:
        remotes = [*(each.remote for each in self._machines), *(each.remote for each in self._towers)]
        for remote in remotes:
            remote.loss_rate = 0.1
        await self._last(6.0)
        for remote in remotes:
            remote.loss_rate = 0.0

    async def take_bucket_down(self, machine: SharedMachine) -> None:
        machine.bucket.is_down = True
        await self._last(6.0)
        machine.bucket.is_down = False

    async def lose_replies(self, machine: SharedMachine) -> None:
        machine.bucket.fault_rate = self._chance.choice((0.1, 0.3))
        machine.bucket.slowness = self._chance.choice((1, 10))
        await self._last(6.0)
        machine.bucket.fault_rate, machine.bucket.slowness = 0.0, 1.0

    async def jump_clock(self, machine: SharedMachine) -> None:
        machine.clock.skew_ms += self._chance.choice((-3_600_000, -5_000, 5_000, 3_600_000))

    async def reset(self, machine: SharedMachine) -> None:
        self._world.network.reset_some(machine.address[0], 0.7)

    KINDS: Final[dict[str, Callable[["SharedFaults", SharedMachine], Awaitable[None]]]] = {
        "kill": kill,
        "kill of all": kill_all,
        "kill of a controller": kill_controller,
        "kill with the controller": kill_both,
        "stop": stop,
        "pause": pause,
        "slow disk": slow_disk,
        "power cut": cut_power,
        "cut": cut_off,
        "lost words": lose_words,
        "bucket down": take_bucket_down,
        "lost replies": lose_replies,
        "clock jump": jump_clock,
        "reset": reset,
    }
