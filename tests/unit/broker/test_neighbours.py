"""Another broker's process ends: clients are told at once that it leads nothing, and that it is there again when it is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace.broker.identity import NOBODY, Identity
from headrace.broker.neighbours import Neighbours
from headrace.control import values_pb2 as pb
from headrace.ids import BrokerEpoch, BrokerId


class Site:
    """A listener of another broker, and what this one thinks of it."""

    def __init__(self) -> None:
        self.members = {"own": pb.BrokerRegistration(numeric_id=1, broker_epoch=1, state=pb.ACTIVE)}
        self.changed = asyncio.Event()
        self.neighbours = Neighbours("own", lambda: self.members, on_changed=self.changed.set)
        self.writers: list[asyncio.StreamWriter] = []
        self.connected = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.writers.append(writer)
            self.connected.set()

        self._server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def register(self, epoch: int = 1) -> None:
        self.members["other"] = pb.BrokerRegistration(
            numeric_id=2, broker_epoch=epoch, state=pb.ACTIVE, advertised={"kafka": f"127.0.0.1:{self.port}"}
        )

    async def die(self) -> None:
        """As a process does: its port is closed with its connections."""
        assert self._server is not None
        self._server.close()
        for writer in self.writers:
            writer.close()
        self.writers.clear()
        self.connected.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    @property
    def told(self) -> int:
        """The leader's number that clients hear."""
        return self._identity().number_of("other")

    @property
    def listed(self) -> list[int]:
        """The brokers that clients hear of."""
        return [each.number for each in self._identity().members("kafka", ("here", 1))]

    def _identity(self) -> Identity:
        return Identity(
            cluster_id="c",
            broker_id=BrokerId(1),
            broker_name="own",
            broker_epoch=BrokerEpoch(1),
            registered=lambda: self.members,
            is_gone=self.neighbours.is_gone,
            left=self.neighbours.left,
        )


@asynccontextmanager
async def opened_site() -> AsyncIterator[Site]:
    site = Site()
    await site.listen()
    site.register()
    running = asyncio.ensure_future(site.neighbours.run())
    try:
        async with asyncio.timeout(30):
            await site.connected.wait()
        yield site
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await site.die()


async def test_one_that_ends_leads_nothing_until_it_listens_again() -> None:
    async with opened_site() as site:
        assert site.told == 2
        await site.die()
        await site.until(lambda: site.told == NOBODY)
        await site.listen()
        await site.until(lambda: site.told == 2)


async def test_the_next_incarnation_is_another() -> None:
    async with opened_site() as site:
        await site.die()
        await site.until(lambda: site.told == NOBODY)
        site.register(epoch=2)
        assert site.told == 2


async def test_one_that_only_ends_the_connection_is_there() -> None:
    """A broker has only so many connections, and ends those that say nothing."""
    async with opened_site() as site:
        site.connected.clear()
        site.writers.pop().close()
        async with asyncio.timeout(30):
            await site.connected.wait()
        assert site.told == 2


async def test_one_that_left_is_listed_for_a_while_and_leads_nothing() -> None:
    """A librdkafka that does not find it in the list forgets it, and may wait for its return for ever."""
    async with opened_site() as site:
        assert site.listed == [1, 2]
        del site.members["other"]
        assert (site.listed, site.told) == ([1, 2], NOBODY)
        site.register(epoch=2)
        assert (site.listed, site.told) == ([1, 2], 2)


async def test_one_that_does_not_come_back_is_listed_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.neighbours.LISTED_S", 0.0)
    async with opened_site() as site:
        del site.members["other"]
        site.changed.clear()
        await site.until(lambda: site.listed == [1])
