"""The link between brokers over a network that delays, breaks and is cut, under virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from tests.simulation.cluster import World
from tests.simulation.loop import Life

from headrace.errors import NotLeader, Overloaded, Unavailable
from headrace.link import outgoing
from headrace.link.link import Link
from headrace.link.party import Party, Peer, Serve
from headrace.wire.peer import frames
from headrace.wire.peer.frames import Call, Hello

T = TypeVar("T")
PORT = 9098
CLUSTER = "one"


class Ends:
    """Brokers `node-1` and `node-2`, each with a link; what the second is asked for is in `served`, in that order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.served: list[bytes] = []
        self.known: dict[str, Peer] = {}
        self.lives: dict[str, Life] = {}

    def inside(self, name: str, work: Callable[[], Awaitable[T]]) -> "asyncio.Task[T]":
        life = self.lives.setdefault(name, Life(name, self.world.source(name)))

        async def run() -> T:
            return await work()

        return self.world.loop.create_task_in(life, run(), name=name)

    async def start(
        self, number: int, *, epoch: int = 1, cluster_id: str = CLUSTER, serve: Serve | None = None
    ) -> Link:
        name, host = f"node-{number}", f"10.0.0.{number}"
        link = Link(
            Party(name, epoch),
            cluster_id=cluster_id,
            directory=self.known.get,
            serve=serve or self.echo,
            chance=self.world.source(name),
        )
        await self.inside(name, lambda: link.start(host, PORT))
        self.known[name] = Peer(epoch, host, PORT)
        return link

    async def echo(self, caller: Party, kind: str, body: bytes) -> bytes:
        self.served.append(body)
        await asyncio.sleep(0.01 if body == b"slow" else 0)
        if kind == "refuse":
            raise NotLeader("not here", broker="node-3")
        return kind.encode() + body

    async def ask(self, link: Link, *bodies: bytes, kind: str = "echo") -> list[bytes]:
        async def run() -> list[bytes]:
            return list(await asyncio.gather(*[link.call("node-2", kind, body) for body in bodies]))

        return await self.inside("node-1", run)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    with world.listened_to():
        asyncio.set_event_loop(world.loop)
        yield world
        asyncio.set_event_loop(None)
        surprises = list(world.surprises)
        world.close()
    assert not surprises


def play(world: World, scene: Callable[[Ends], Awaitable[None]]) -> None:
    async def run() -> None:
        await scene(Ends(world))

    world.loop.run_until_complete(run())


def test_calls_are_carried_out_in_their_order_and_answered_as_they_end(world: World) -> None:
    async def scene(ends: Ends) -> None:
        caller, _ = await ends.start(1), await ends.start(2)
        bodies = [b"slow", *(b"%d" % number for number in range(50))]
        assert await ends.ask(caller, *bodies) == [b"echo" + body for body in bodies]
        assert ends.served == bodies

    play(world, scene)


def test_an_error_of_the_other_broker_is_raised_here(world: World) -> None:
    async def scene(ends: Ends) -> None:
        caller, _ = await ends.start(1), await ends.start(2)
        with pytest.raises(NotLeader, match="not here") as found:
            await ends.ask(caller, b"x", kind="refuse")
        assert found.value.broker == "node-3"

    play(world, scene)


@pytest.mark.parametrize("case", ["another cluster", "another incarnation is meant", "the caller was replaced"])
def test_who_is_not_meant_or_not_current_is_served_nothing(world: World, case: str) -> None:
    async def scene(ends: Ends) -> None:
        link = await ends.start(1, cluster_id="another" if case == "another cluster" else CLUSTER)
        await ends.start(2, epoch=3)
        if case == "another incarnation is meant":
            ends.known["node-2"] = Peer(2, "10.0.0.2", PORT)
        elif case == "the caller was replaced":
            ends.known["node-1"] = Peer(2, "10.0.0.1", PORT)
        with pytest.raises(Unavailable):
            await ends.ask(link, b"x")
        assert ends.served == []

    play(world, scene)


class Wire(asyncio.Transport):
    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass


def test_what_is_late_on_a_former_connection_is_not_carried_out(world: World) -> None:
    """A marker that was sent twice, and whose first copy is stuck in the network, must not come after the second."""

    async def scene(ends: Ends) -> None:
        called = await ends.start(2)
        hello = frames.encode(Hello(1, CLUSTER, "node-1", 1, "node-2", 1))
        former, following = called._accept(), called._accept()
        for connection in (former, following):
            connection.connection_made(Wire())
        former.data_received(hello + frames.encode(Call(1, "echo", b"first")))
        following.data_received(hello + frames.encode(Call(1, "echo", b"second")))
        former.data_received(frames.encode(Call(2, "echo", b"late")))
        await asyncio.sleep(10)
        assert ends.served == [b"first", b"second"]

    play(world, scene)


def test_a_peer_from_which_nothing_comes_is_given_up_and_found_again(world: World) -> None:
    async def scene(ends: Ends) -> None:
        caller, _ = await ends.start(1), await ends.start(2)
        await ends.ask(caller, b"first")
        world.network.cut("10.0.0.2", "10.0.0.1")
        before_s = world.loop.time()
        with pytest.raises(Unavailable):
            await ends.ask(caller, b"unheard")
        assert world.loop.time() - before_s <= outgoing.SILENT_S + 2 * outgoing.PING_S
        world.network.heal()
        await asyncio.sleep(5)
        assert await ends.ask(caller, b"again") == [b"echoagain"]

    play(world, scene)


def test_a_call_that_takes_long_is_waited_for_while_its_broker_is_there(world: World) -> None:
    async def slowly(caller: Party, kind: str, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b"at last"

    async def scene(ends: Ends) -> None:
        caller, _ = await ends.start(1), await ends.start(2, serve=slowly)
        assert await ends.ask(caller, b"x") == [b"at last"]

    play(world, scene)


def test_a_broker_that_is_fenced_is_neither_waited_for_nor_served(world: World) -> None:
    async def never(caller: Party, kind: str, body: bytes) -> bytes:
        await asyncio.sleep(1e6)
        return b""

    async def scene(ends: Ends) -> None:
        caller, called = await ends.start(1), await ends.start(2, serve=never)
        asking = asyncio.ensure_future(ends.ask(caller, b"x"))
        await asyncio.sleep(1)
        del ends.known["node-2"]
        caller.members_changed()
        with pytest.raises(Unavailable):
            await asking
        ends.known["node-1"] = Peer(9, "10.0.0.1", PORT)
        called.members_changed()

    play(world, scene)


def test_calls_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "CALLS_MAX", 10)
    monkeypatch.setattr(outgoing, "CALL_BYTES_MAX", 1000)

    async def scene(ends: Ends) -> None:
        caller, _ = await ends.start(1), await ends.start(2)
        with pytest.raises(Overloaded):
            await ends.ask(caller, *[b"x"] * 11)
        await asyncio.sleep(1)
        with pytest.raises(Overloaded):
            await ends.ask(caller, bytes(600), bytes(600))
        await asyncio.sleep(1)
        assert await ends.ask(caller, bytes(600)) == [b"echo" + bytes(600)]

    play(world, scene)


def test_who_cannot_be_reached_is_not_asked_in_a_circle(world: World) -> None:
    async def scene(ends: Ends) -> None:
        caller = await ends.start(1)
        ends.known["node-2"] = Peer(1, "10.0.0.2", PORT)
        attempts = 0

        async def count(*arguments: object, **named: object) -> None:
            nonlocal attempts
            attempts += 1
            raise ConnectionRefusedError

        world.loop.connect = count
        for _ in range(10_000):
            with pytest.raises(Unavailable):
                await ends.ask(caller, b"x")
            await asyncio.sleep(0.001)
        assert 5 < attempts < 30

    play(world, scene)
