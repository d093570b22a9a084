"""Simulated machines with a real node on each, and the world around them.

A node is `headrace.node.node.Node` as `headrace up` builds it: Kafka door, broker, log, tier and metastore. Only what
`NodeParts` names is simulated. Today the nodes know nothing of each other: each has a metastore and a bucket of its own.
"""

import asyncio
import contextlib
import gc
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import structlog
from tests.simulation.bucket import SimulatedBucket, SimulatedMetastoreFile
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import Life, SimulatedClock, SimulatedLoop
from tests.simulation.network import Address, Network

from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.broker.services import Broker
from headrace.clock import Clock
from headrace.config.load import load
from headrace.config.settings import NodeSettings
from headrace.control import keys
from headrace.control.embedded import EmbeddedMetastore
from headrace.doors.kafka.server import KafkaDoor
from headrace.errors import HeadraceError, StorageFailed
from headrace.log.wal.file import RingFile
from headrace.log.wal.flusher import Done
from headrace.node.node import Node
from headrace.node.parts import Door, NodeParts

DATA: Final = Path("/simulated")
WAL: Final = DATA / "wal"
RING: Final = WAL / "ring"
FENCE: Final = WAL / "FENCE"
_STOP_S_MAX: Final = 120.0
KAFKA_PORT: Final = 9092
PEER_PORT: Final = 9098


class World:
    """Time, network, machines, and a trace of all that happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(self.source("loop"))
        self.loop.set_exception_handler(self._unheard)
        self.network = Network(self.loop, self.source("network"))
        self.machines: list[Machine] = []
        self.trace: list[str] = []
        self.surprises: list[str] = []
        """What a sound node never does, whatever happens to it."""
        self._is_over = False

    def source(self, purpose: str) -> random.Random:
        """Dice of its own for each purpose: what one of them draws does not change what another does."""
        return random.Random(f"{self.seed} {purpose}")

    def note(self, who: str, what: str) -> None:
        if self._is_over:
            return
        self.trace.append(f"{self.loop.time():.6f} {who}: {what}")

    def surprised(self, what: str) -> None:
        if self._is_over:
            return
        self.note("surprise", what)
        self.surprises.append(f"{self.loop.time():.3f} s: {what}")

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, HeadraceError):
            return  # Nobody asked for its outcome any more; it is said where it matters.
        trail = "".join(traceback.format_exception(error)) if error is not None else ""
        self.surprised(f"{context.get('message')} {trail}")

    @contextlib.contextmanager
    def listened_to(self) -> Iterator[None]:
        """What nodes log goes into the trace, and what they should never log is a surprise."""

        def heed(_: object, level: str, event: Mapping[str, Any]) -> str:
            message = str(event.get("event"))
            self.note("log", f"{level} {message}")
            if event.get("exc_info") or "is started again" in message:
                self.surprised(f"{message}: {traceback.format_exc()}")
            raise structlog.DropEvent

        before = structlog.get_config()
        structlog.configure(
            processors=[heed],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)

    def close(self) -> None:
        """What was killed is closed here, where nobody listens: some of it would go on working for a while."""
        self._is_over = True
        heard, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for machine in self.machines:
                    machine.discard()
                self.machines.clear()
                gc.collect()
        finally:
            sys.unraisablehook = heard
        self.loop.close()


class Machine:
    """A computer: its disk, its clocks, its bucket, and the process that runs on it, if one does."""

    def __init__(self, world: World, number: int, options: Mapping[str, str]) -> None:
        self.world = world
        self.name = f"node-{number}"
        self.address: Address = (f"10.0.0.{number}", KAFKA_PORT)
        self.chance = world.source(self.name)
        self.disk = SimulatedDisk(self.chance)
        self.clock = SimulatedClock(world.loop)
        self.bucket = SimulatedBucket(SimulatedClock(world.loop), self.chance)
        self.metastore = SimulatedMetastoreFile(self.chance)
        self.settings = settings_of(self.name, self.address, options)
        self.life: Life | None = None
        self.node: Node | None = None
        self.is_ready = False
        self.is_wanted = True
        """Whether somebody starts it again when it has ended."""
        self.slowness = 1.0
        self.lives: list[Life] = []
        self.on_fault: Callable[[HeadraceError], None] | None = None
        """Of the node that runs now."""
        self._chance_inside = world.source(f"{self.name} inside")
        world.machines.append(self)

    # -- the process ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.life is not None or not self.is_wanted:
            return
        life = self.life = Life(self.name, self.chance)
        life.slowness = self.slowness
        self.lives.append(life)
        self.world.note(self.name, "start")
        self.world.loop.create_task_in(life, self._run(life), name=f"{self.name} runs")

    async def _run(self, life: Life) -> None:
        """As `node/process.py`: until a fault ends it, or somebody else does."""
        faults: list[HeadraceError] = []
        failed = asyncio.Event()

        def fault(error: HeadraceError) -> None:
            self.world.note(self.name, f"fault {error}")
            faults.append(error)
            failed.set()

        self.on_fault = fault
        node = self.node = Node(self.settings, on_fault=fault, parts=self._parts())
        try:
            await node.start()
        except HeadraceError as error:
            self.world.note(self.name, f"did not start: {error}")
            self._ended(life)
            return
        except Exception:
            self.world.surprised(f"{self.name} did not start: {traceback.format_exc()}")
            self._ended(life)
            return
        self.is_ready = True
        self.world.note(self.name, "ready")
        await failed.wait()
        await self._stop(node, is_clean=False)
        self._ended(life)

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        life, node = self.life, self.node
        if life is None or node is None:
            return
        self.world.note(self.name, "stop")
        ended = self.world.loop.create_future()

        async def stop_inside() -> None:
            await self._stop(node, is_clean=True)
            self._ended(life)
            if not ended.done():
                ended.set_result(None)

        self.world.loop.create_task_in(life, stop_inside(), name=f"{self.name} stops")
        await asyncio.wait_for(ended, _STOP_S_MAX)

    async def _stop(self, node: Node, *, is_clean: bool) -> None:
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await node.stop(is_clean=is_clean)
        except TimeoutError:
            self.world.surprised(f"{self.name} does not stop")
        except HeadraceError as error:
            self.world.note(self.name, f"stopped badly: {error}")
        except Exception:
            self.world.surprised(f"{self.name} did not stop: {traceback.format_exc()}")

    def _ended(self, life: Life, *, lost_after_s: float = 0.0) -> None:
        if life.is_dead:
            return
        life.is_dead = True
        self.world.note(self.name, "ended")
        self.world.network.lose(life, after_s=lost_after_s)
        if self.life is life:
            self.life = self.node = None
            self.is_ready = False
        self.world.loop.call_later(self.chance.uniform(0.1, 2.0), self.start, context=self.world.loop.outside)

    def discard(self) -> None:
        """The end of the simulation."""
        for life in self.lives:
            life.is_dead = True
            life.bury()
        self.metastore.discard()

    # -- faults --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9: the page cache survives, and what threads were doing ends somewhere in the middle."""
        life = self.life
        if life is None:
            return
        self.world.note(self.name, "killed")
        self._ended(life)
        for job in list(life.jobs):
            self.disk.interrupt(job.work)

    def cut_power(self) -> None:
        """As `kill`, and what was not flushed is lost. Others hear of it late: nobody says goodbye."""
        life = self.life
        self.world.note(self.name, "power cut")
        if life is not None:
            self._ended(life, lost_after_s=self.chance.uniform(0.5, 5.0))
            for job in list(life.jobs):
                self.disk.interrupt(job.work)
        self.disk.lose_power()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.life is not None and not self.life.is_paused:
            self.world.note(self.name, "paused")
            self.life.is_paused = True

    def resume(self) -> None:
        if self.life is not None and self.life.is_paused:
            self.world.note(self.name, "resumed")
            self.life.resume(self.world.loop)

    def slow_down(self, slowness: float) -> None:
        self.slowness = slowness
        if self.life is not None:
            self.life.slowness = slowness

    # -- what the node is given ----------------------------------------------------------------------------------

    def _parts(self) -> NodeParts:
        return NodeParts(
            clock=self.clock,
            chance=self._chance_inside,
            disk=self.disk,
            flusher=SimulatedFlusher,
            directory=_NoDirectory,
            metastore=self._open_metastore,
            blobs=self._open_blobs,
            doors=(_open_kafka,),
            has_admin=False,
        )

    async def _open_metastore(self, settings: NodeSettings, *, clock: Clock) -> EmbeddedMetastore:
        keyspace = await asyncio.to_thread(self.metastore.load, keys.EXPENDABLE)
        writer = ThreadPoolExecutor(max_workers=1)
        return EmbeddedMetastore(self.metastore, keyspace, writer=writer, clock=clock)

    def _open_blobs(self, settings: ObjectStoreSettings, clock: Clock) -> BlobStore:
        return self.bucket


class SimulatedFlusher:
    """Writes one group at a time, as a thread does; a kill may tear the group."""

    def __init__(self, file: RingFile, done: Done) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self._file = file
        self._done = done
        self._is_closed = False
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._finish: Callable[[], None] = lambda: None

    def write(self, lsn: int, image: memoryview) -> None:
        job, ended = self._loop.start_job(self._thread, lambda: self._file.write(lsn, image))
        self._finish = job.run
        ended.add_done_callback(self._ended)

    def _ended(self, ended: "asyncio.Future[None]") -> None:
        error = ended.exception()
        if not self._is_closed:
            is_known = error is None or isinstance(error, HeadraceError)
            self._done(error if is_known else StorageFailed(repr(error)))  # type: ignore[arg-type]

    def close(self) -> None:
        self._is_closed = True
        self._finish()


def _open_kafka(settings: NodeSettings, broker: Broker) -> Door:
    return KafkaDoor(settings.kafka, broker, settings.listeners_of("kafka"))


class _NoDirectory:
    """Nobody else could take it."""

    former_umask = 0

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        pass

    def publish(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        pass

    def close(self) -> None:
        pass


def settings_of(name: str, address: Address, options: Mapping[str, str]) -> NodeSettings:
    """Small and quick everywhere: in half a minute everything that a node does has been done many times."""
    given = {
        "broker.id": name,
        "data.dir": str(DATA),
        "wal.path": str(WAL),
        "listen.kafka": f"{address[0]}:{address[1]}",
        "listen.peer": f"{address[0]}:{PEER_PORT}",
        "object_store.type": "memory",
        "security.open": "true",
        "pipeline.enable": "false",
        **options,
    }
    return load(environ={}, assignments=[f"{key}={value}" for key, value in given.items()])
