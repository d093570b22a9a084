"""Which other brokers' processes have just ended: told before the controllers have decided what follows from it.

A client whose broker dies asks another one at once who leads now. Told the dead one again, it believes that, and librdkafka asks
again only a second later: longer than everything else that a failover takes. Told that nobody leads, clients ask again in moments.

So each broker keeps a connection to every other one, on which nothing is said. Its end is seen at once when a process dies. Whoever cannot
be dialled then because nobody listens there leads nothing; whoever can, or does not answer at all, is taken to be there, as before. Nothing
but what clients are told depends on it: who leads is decided elsewhere.

Who has left is still listed for a while, leading nothing: most come back within seconds. librdkafka (2.10 and newer) forgets a broker that
is not listed, but not that it coordinates a group, and then waits for ever for a connection that nobody makes (its issue 5511).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from headrace.broker.identity import serves
from headrace.control import values_pb2 as pb

_DIAL_S: Final = 0.5
_AGAIN_S: Final = 0.1
"""Between two attempts to reach one."""
_LASTING_S: Final = 1.0
"""A connection that was ended sooner was not wanted: a broker has only so many."""
_LOOK_S: Final = 0.5
"""How often to look who there is."""
LISTED_S: Final = 9.0
"""How long who has left is listed: as long as Kafka lists one that died, by default (`broker.session.timeout.ms`)."""
_LISTENER: Final = "kafka"


class Neighbours:
    def __init__(
        self,
        own_name: str,
        registered: Callable[[], Mapping[str, pb.BrokerRegistration]],
        *,
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed` is called when somebody is gone, or back."""
        self._own_name = own_name
        self._registered = registered
        self._on_changed = on_changed
        self._gone: set[tuple[str, int]] = set()
        """By name and epoch: the next incarnation of one that ended is another."""
        self._watched: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._serving: dict[str, pb.BrokerRegistration] = {}
        """When we looked last."""
        self._left: dict[str, tuple[pb.BrokerRegistration, float]] = {}
        """Who has stopped serving, and until when by the loop's clock it is listed."""

    def left(self) -> dict[str, pb.BrokerRegistration]:
        """The brokers that served a few seconds ago and do not now, by name."""
        self._remember_who_left()
        return {name: each for name, (each, _) in self._left.items()}

    def is_gone(self, name: str) -> bool:
        found = self._registered().get(name)
        return found is not None and (name, found.broker_epoch) in self._gone

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._follow_members()
                await asyncio.sleep(_LOOK_S)
        finally:
            for task in self._watched.values():
                task.cancel()
            await asyncio.gather(*self._watched.values(), return_exceptions=True)

    def _follow_members(self) -> None:
        if self._remember_who_left():
            self._on_changed()
        present = {
            (name, each.broker_epoch): each.advertised[_LISTENER]
            for name, each in self._serving.items()
            if each.advertised.get(_LISTENER)
        }
        for member in [each for each in self._watched if each not in present]:
            self._watched.pop(member).cancel()
            self._gone.discard(member)
        for member, address in present.items():
            if member not in self._watched:
                self._watched[member] = asyncio.ensure_future(self._watch(member, address))

    def _remember_who_left(self) -> bool:
        """Whether somebody is not listed any longer."""
        now_s = asyncio.get_running_loop().time()
        serving = {name: each for name, each in self._registered().items() if name != self._own_name and serves(each)}
        for name, each in self._serving.items():
            if name not in serving:
                self._left[name] = (each, now_s + LISTED_S)
        self._serving = serving
        over = [name for name, (_, end_s) in self._left.items() if name in serving or now_s >= end_s]
        for name in over:
            del self._left[name]
        return bool(over)

    async def _watch(self, member: tuple[str, int], address: str) -> None:
        host, _, port = address.rpartition(":")
        while True:
            try:
                async with asyncio.timeout(_DIAL_S):
                    reader, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                self._note(member, is_gone=True)
            except (OSError, TimeoutError):
                self._note(member, is_gone=False)
            else:
                self._note(member, is_gone=False)
                if await _lasted(reader, writer):
                    # Until it is dialled again: who has died is refused a moment from now, and clients ask before that.
                    self._note(member, is_gone=True)
                    continue
            await asyncio.sleep(_AGAIN_S)

    def _note(self, member: tuple[str, int], *, is_gone: bool) -> None:
        if is_gone != (member in self._gone):
            (self._gone.add if is_gone else self._gone.discard)(member)
            self._on_changed()


async def _lasted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Waits for the connection's end; whether it was there for a while."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        with suppress(OSError):
            await reader.read(1)
    finally:
        writer.close()
    return loop.time() - begun >= _LASTING_S
