"""Whether a broker is online: looked at every 15 s, offline after 30 s without an answer, at once when it is fenced."""

from collections.abc import Sequence

import pytest
from tests.support.metastores import ManualClock

from headrace.broker.broker_watch import LOOK_S, SILENT_MS_MAX, BrokerWatch, ControllerSeen
from headrace.broker.identity import Identity
from headrace.control import values_pb2 as pb
from headrace.errors import NotReady
from headrace.ids import BrokerEpoch, BrokerId

CONTROLLER = ControllerSeen(id="c1", endpoint="localhost:1", is_active=True)


class World:
    """Two brokers: this one, and one that answers or does not."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.registered = {name: pb.BrokerRegistration(host=name, state=pb.ACTIVE) for name in ("here", "there")}
        self.does_answer = True
        self.has_controller = True
        self.asked: list[str] = []
        identity = Identity(
            cluster_id="c",
            broker_id=BrokerId(1),
            broker_name="here",
            broker_epoch=BrokerEpoch(1),
            registered=lambda: self.registered,
        )
        self.watch = BrokerWatch(identity, self.clock, probe=self._probe, read_controllers=self._controllers)

    async def _probe(self, registration: pb.BrokerRegistration) -> bool:
        self.asked.append(registration.host)
        return self.does_answer

    async def _controllers(self) -> Sequence[ControllerSeen]:
        if not self.has_controller:
            raise NotReady("away")
        return [CONTROLLER]


@pytest.mark.requirement("X3.2")
async def test_a_broker_is_offline_when_it_has_not_answered_for_thirty_seconds() -> None:
    world = World()
    assert (LOOK_S, SILENT_MS_MAX) == (15.0, 30_000)
    await world.watch.look()
    world.does_answer = False
    world.clock.advance(15_000)
    await world.watch.look()
    assert world.watch.is_online("there")
    world.clock.advance(14_999)
    assert world.watch.is_online("there")
    world.clock.advance(1)
    assert not world.watch.is_online("there")
    world.does_answer = True
    await world.watch.look()
    assert world.watch.is_online("there")
    assert set(world.asked) == {"there"}, "a broker does not ask itself"


async def test_one_that_never_answers_is_offline_thirty_seconds_after_the_first_look() -> None:
    world = World()
    world.does_answer = False
    for _ in range(2):
        await world.watch.look()
        assert world.watch.is_online("there")
        world.clock.advance(15_000)
    assert not world.watch.is_online("there")


async def test_a_fenced_or_unknown_broker_is_offline_at_once() -> None:
    world = World()
    await world.watch.look()
    world.registered["there"].state = pb.FENCED
    assert not world.watch.is_online("there")
    assert not world.watch.is_online("nowhere")
    assert world.watch.is_online("here")


async def test_controllers_that_cannot_be_asked_are_not_shown() -> None:
    world = World()
    await world.watch.look()
    assert list(world.watch.controllers) == [CONTROLLER]
    world.has_controller = False
    await world.watch.look()
    assert list(world.watch.controllers) == []
