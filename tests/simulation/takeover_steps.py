"""A takeover that is interrupted at one of its steps: the broker that takes over is killed there, and somebody goes on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from tests.simulation.checkers import Ledger
from tests.simulation.cluster import World
from tests.simulation.faults import Options
from tests.simulation.loop import OWNER
from tests.simulation.shared import (
    WAL_TOPIC,
    SharedFaults,
    SharedMachine,
    SharedScene,
    shared_actors,
    shared_readers,
    started_cluster,
)
from tests.simulation.shared_simulation import created, shared_options, stopped, verified
from tests.simulation.simulation import Result, is_in_time, played

from headrace.broker.adopting import Adopting
from headrace.broker.ceilings import Ceilings
from headrace.broker.shared_topics import SharedTopics
from headrace.control.cluster import Cluster
from headrace.control.takeovers import Takeovers
from headrace.errors import NotReady
from headrace.log.foreign import ForeignWal
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore

Patch = pytest.MonkeyPatch
AWAITED: Final = (
    (Cluster, "reload"),
    (Takeovers, "change"),
    (LogStore, "checkpoint"),
    (Cluster, "take_over"),
    (Ceilings, "cover"),
)
CALLED: Final = (
    (ForeignWal, "fence"),
    (ForeignWal, "read"),
    (PartitionLog, "append_copy"),
    (SharedTopics, "take_lead"),
)
COPIES_COUNTED: Final = 3


@dataclass
class Steps:
    """Counts what whoever takes over does, before and after each; its machine dies at number `last`."""

    last: int | None
    is_power_cut: bool
    machines: list[SharedMachine] = field(default_factory=list)
    taken: int = 0
    copies: int = 0
    _inside: dict[object, None] = field(default_factory=dict)

    def patch(self, patch: Patch) -> None:
        patch.setattr(Adopting, "_take_over", self._entered(Adopting._take_over))
        for owner, name in AWAITED:
            patch.setattr(owner, name, self._awaited(getattr(owner, name)))
        for kind, name in CALLED:
            patch.setattr(kind, name, self._called(name, getattr(kind, name)))

    def _entered(self, method: Callable[..., Any]) -> Callable[..., Any]:  # Any: whatever the method takes and gives
        async def entered(*arguments: Any, **options: Any) -> Any:  # Any: as above
            life = OWNER.get()
            self._inside[life] = None
            try:
                return await method(*arguments, **options)
            finally:
                self._inside.pop(life, None)

        return entered

    def _awaited(self, method: Callable[..., Any]) -> Callable[..., Any]:  # Any: as above
        async def counted(*arguments: Any, **options: Any) -> Any:  # Any: as above
            if self.reach():
                await asyncio.get_running_loop().create_future()
            result = await method(*arguments, **options)
            if self.reach():
                await asyncio.get_running_loop().create_future()
            return result

        return counted

    def _called(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:  # Any: as above
        def counted(*arguments: Any, **options: Any) -> Any:  # Any: as above
            if name == "append_copy":
                self.copies += 1
                if self.copies > COPIES_COUNTED:
                    return method(*arguments, **options)
            if self.reach():
                raise NotReady("killed")
            result = method(*arguments, **options)
            if self.reach():
                raise NotReady("killed")
            return result

        return counted

    def reach(self) -> bool:
        """Whether this was the last."""
        life = OWNER.get()
        if life not in self._inside:
            return False
        self.taken += 1
        if self.taken != self.last:
            return False
        machine = next(each for each in self.machines if each.life is life)
        if self.is_power_cut:
            machine.cut_power()
        else:
            machine.kill()
        return True


def interrupted(
    seed: int, *, last: int | None, is_power_cut: bool = False, upload_ms: int = 60_000
) -> tuple[Result, int]:
    """The outcome, and how many steps there were."""
    steps = Steps(last, is_power_cut)

    async def play(world: World, options: Options, ledger: Ledger) -> None:
        machines, towers = await started_cluster(world, options.settings, brokers=3, controllers=1, is_one_machine=True)
        steps.machines = machines
        scene = SharedScene(world, machines, ledger)
        faults = SharedFaults(world, machines, towers, [], 1.0)
        try:
            await _play(scene, faults, ledger)
        finally:
            for tower in towers:
                tower.discard()

    def choose(world: World) -> Options:
        options = shared_options(world)
        options.settings["tier.upload.interval.ms"] = str(upload_ms)
        return options

    with pytest.MonkeyPatch.context() as patch:
        steps.patch(patch)
        result = played(seed, choose, play)
    return result, steps.taken


async def _play(scene: SharedScene, faults: SharedFaults, ledger: Ledger) -> None:
    if not await is_in_time(created(scene), ledger, "the first start"):
        return
    writing = [asyncio.ensure_future(each.live()) for each in shared_actors(scene, topics=(WAL_TOPIC,))]
    reading = [asyncio.ensure_future(each.live()) for each in shared_readers(scene, topics=(WAL_TOPIC,))]
    try:
        await asyncio.sleep(1.5)
        scene.machines[1].kill()
        scene.machines[1].is_wanted = False
        await asyncio.sleep(4.0)
        scene.machines[1].is_wanted = True
        scene.machines[1].start()
        await faults.heal()
        scene.is_healed = True
        if not await is_in_time(asyncio.gather(*writing), ledger, "writing once healed"):
            return
        scene.is_written = True
        if not await is_in_time(asyncio.gather(*reading), ledger, "reading to the end"):
            return
    finally:
        for each in (*writing, *reading):
            each.cancel()
        await asyncio.gather(*writing, *reading, return_exceptions=True)
    if await is_in_time(verified(scene), ledger, "reading everything"):
        await is_in_time(stopped(scene), ledger, "the last stop")
