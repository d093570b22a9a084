"""What goes wrong in a simulation, and when: all of it follows from the seed.

Each seed enables some kinds of fault and leaves the others out (a run with all of them hides what only few together show),
and prints which. Every fault ends by itself; `heal` ends all of them.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.checkers import Ledger
from tests.simulation.cluster import FENCE, RING, Machine, World
from tests.simulation.load import TXN_TOPIC, WAL_TOPIC

from headrace.log.wal.format import DATA_START

FAULTS_S: Final = (4.0, 14.0)
KIB: Final = 1024
LOSSES: Final = ("lost disk", "rot")
"""Kinds that may cost records of a topic whose durability is this disk. One seed in four has one."""


@dataclass
class Options:
    """What a seed is about."""

    seed: int
    seconds: float
    kinds: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    pause_s: float = 2.0
    """Between two faults, on average."""
    is_disk_lost_at_end: bool = False
    """After a clean stop the bucket has everything: another disk is put in its place."""

    is_one_machine: bool = False
    """Whether several brokers share a machine, and can read each other's disks."""

    def __str__(self) -> str:
        settings = " ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"seed {self.seed}: {self.seconds:.0f} s, faults {self.kinds}, every {self.pause_s:.1f} s; one machine {self.is_one_machine}; {settings}"


def options_of(world: World) -> Options:
    chance = world.source("options")
    kinds = [kind for kind in Faults.KINDS if kind not in LOSSES and chance.random() < 0.5]
    if chance.random() < 0.25:
        kinds.append(chance.choice(LOSSES))
    return Options(
        seed=world.seed,
        seconds=chance.uniform(*FAULTS_S),
        kinds=kinds or ["kill"],
        pause_s=chance.choice((0.5, 2.0, 5.0)),
        is_disk_lost_at_end=chance.random() < 0.3,
        settings={
            "wal.capacity.bytes": str(chance.choice((3072, 4096, 8192)) * KIB),
            "wal.spill.bytes": str(chance.choice((0, 64 * KIB * KIB))),
            "cache.write.size.bytes": str(chance.choice((1, 16)) * KIB * KIB),
            "cache.read.size.bytes": str(8 * KIB * KIB),
            "tier.cache.disk.bytes": "0",
            "tier.read.ahead.bytes": "0",
            "tier.upload.interval.ms": str(chance.choice((200, 500, 3000))),
            "tier.upload.stream.bytes": str(chance.choice((1024, 1024 * KIB))),
            "tier.sweep.interval.ms": str(chance.choice((400, 1500))),
            "tier.grace.ms": str(chance.choice((200, 3000))),
            "tier.compact.sources": str(chance.choice((2, 4))),
            "tier.snapshot.interval.ms": str(chance.choice((500, 5000))),
            "object_store.request.timeout.ms": "5000",
            "object_store.retry.count": "2",
            "object_store.circuit.open.ms": "500",
            "group.initial.rebalance.delay.ms": "200",
            "group.min.session.timeout.ms": "1000",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "auto.create.topics.enable": "false",
        },
    )


class Faults:
    """Strikes one machine. `strike` goes on until it is cancelled; then `heal`. Faults that last overlap with others."""

    def __init__(self, world: World, machine: Machine, ledger: Ledger, options: Options) -> None:
        self._world = world
        self._machine = machine
        self._ledger = ledger
        self._options = options
        self._chance = world.source(f"{machine.name} faults")
        self._lasting: list[asyncio.Future[None]] = []

    async def strike(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._options.pause_s))
            kind = self._chance.choice(self._options.kinds)
            self._world.note("fault", kind)
            self._lasting.append(asyncio.ensure_future(self.KINDS[kind](self)))

    async def heal(self) -> None:
        for each in self._lasting:
            each.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        machine = self._machine
        machine.disk.is_full = False
        machine.disk.failure = None
        machine.disk.remove(FENCE)
        self._ledger.fenced_since_s = None
        machine.bucket.is_down = False
        machine.bucket.fault_rate = 0.0
        machine.bucket.slowness = 1.0
        machine.metastore.fails_next = False
        machine.slow_down(1.0)
        machine.resume()
        self._world.network.heal()
        self._world.note("fault", "healed")

    async def _last(self, longest_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(0.01, longest_s))

    # -- the process ---------------------------------------------------------------------------------------------

    async def kill(self) -> None:
        self._machine.kill()

    async def kill_twice(self) -> None:
        """The second time while it starts."""
        self._machine.kill()
        await self._last(2.5)
        self._machine.kill()

    async def stop(self) -> None:
        if self._machine.is_ready:
            await self._machine.stop()

    async def pause(self) -> None:
        self._machine.pause()
        await self._last(12.0)
        self._machine.resume()

    async def jump_clock(self) -> None:
        self._machine.clock.skew_ms += self._chance.choice((-3_600_000, -5_000, -100, 100, 5_000, 3_600_000))

    # -- the disk ------------------------------------------------------------------------------------------------

    async def cut_power(self) -> None:
        self._machine.cut_power()

    async def slow_disk(self) -> None:
        self._machine.slow_down(self._chance.choice((10, 100, 1000)))
        await self._last(4.0)
        self._machine.slow_down(1.0)

    async def fill_disk(self) -> None:
        self._machine.disk.is_full = True
        await self._last(5.0)
        self._machine.disk.is_full = False

    async def fail_disk(self) -> None:
        self._machine.disk.failure = errno.EIO
        await self._last(1.0)
        self._machine.disk.failure = None

    async def lose_disk(self) -> None:
        """The WAL's disk is replaced by an empty one; the metastore is elsewhere."""
        self._ledger.may_miss |= {WAL_TOPIC, TXN_TOPIC}
        self._ledger.is_state_lost = True
        self._machine.kill()
        self._machine.disk.wipe()
        self._ledger.fenced_since_s = None

    async def rot(self) -> None:
        self._ledger.may_miss |= {WAL_TOPIC, TXN_TOPIC}
        self._ledger.is_state_lost = True
        self._ledger.has_rotted = True
        self._machine.kill()
        self._machine.disk.rot(RING, DATA_START)

    async def fence(self) -> None:
        """Somebody takes the WAL over and reads it: from then on nothing may be acknowledged."""
        if not self._machine.is_ready:
            return
        self._machine.disk.place(FENCE)
        self._ledger.fenced_since_s = self._world.loop.time()
        await self._last(3.0)
        self._machine.kill()
        self._ledger.fenced_since_s = None
        self._machine.disk.remove(FENCE)

    # -- the bucket, the metastore, the network ------------------------------------------------------------------

    async def take_bucket_down(self) -> None:
        self._machine.bucket.is_down = True
        await self._last(10.0)
        self._machine.bucket.is_down = False

    async def lose_replies(self) -> None:
        self._machine.bucket.fault_rate = self._chance.choice((0.1, 0.4))
        self._machine.bucket.slowness = self._chance.choice((1, 10))
        await self._last(8.0)
        self._machine.bucket.fault_rate = 0.0
        self._machine.bucket.slowness = 1.0

    async def fail_commit(self) -> None:
        self._machine.metastore.fails_next = True

    async def cut(self) -> None:
        """One way, for one of the clients."""
        client = self._chance.choice(("idempotent-on-wal-0", "txn-a", "member-0", "reader-wal"))
        pair = (self._world.network.host(client), self._machine.address[0])
        self._world.network.cut(*(pair if self._chance.random() < 0.5 else pair[::-1]))
        await self._last(8.0)
        self._world.network.heal()

    async def reset(self) -> None:
        self._world.network.reset_some(self._machine.address[0], 0.7)

    KINDS: Final[dict[str, Callable[["Faults"], Coroutine[Any, Any, None]]]] = {
        "kill": kill,
        "kill twice": kill_twice,
        "stop": stop,
        "pause": pause,
        "clock jump": jump_clock,
        "power cut": cut_power,
        "slow disk": slow_disk,
        "full disk": fill_disk,
        "failing disk": fail_disk,
        "lost disk": lose_disk,
        "rot": rot,
        "fence": fence,
        "bucket down": take_bucket_down,
        "lost replies": lose_replies,
        "failed commit": fail_commit,
        "cut": cut,
        "reset": reset,
    }
