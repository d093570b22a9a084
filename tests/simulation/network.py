"""A network in memory: every byte arrives late, connections break, and directions can be cut.

Within a connection order is kept, as TCP does; between connections it is not. While a direction is cut its bytes wait, as
TCP sends them again; a connection that breaks loses what was under way.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.simulation.loop import OWNER, Life, SimulatedLoop

Address = tuple[str, int]
_DELAY_S: Final = (0.0002, 0.003)
_FIRST_PORT: Final = 40_000


class Network:
    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._listeners: dict[Address, Listener] = {}
        self._ends: dict[End, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._hosts: dict[str, str] = {}
        self._next_port = _FIRST_PORT
        self.slowness = 1.0
        loop.listen = self.listen
        loop.connect = self.connect_from_here

    def host(self, name: str) -> str:
        """The address of a client by its name."""
        return self._hosts.setdefault(name, f"10.1.0.{len(self._hosts) + 1}")

    def listen(self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> "Listener":
        listener = Listener(self, make, (host, port), OWNER.get())
        self._listeners[(host, port)] = listener
        return listener

    def forget(self, listener: "Listener") -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, protocol: asyncio.Protocol, source: str, address: Address) -> "End":
        """A connection from the host `source`; `ConnectionRefusedError` when nobody listens there."""
        await asyncio.sleep(self.delay_s())
        while self.is_cut(source, address[0]) or self.is_cut(address[0], source):
            await asyncio.sleep(0.5)
        listener = self._listeners.get(address)
        if listener is None or (listener.life is not None and listener.life.is_dead):
            raise ConnectionRefusedError(f"nobody listens on {address[0]}:{address[1]}")
        self._next_port += 1
        here = End(self, self._loop, protocol, own=(source, self._next_port), other=address, life=OWNER.get())
        there = End(self, self._loop, listener.make(), own=address, other=here.own, life=listener.life)
        here.peer, there.peer = there, here
        self._ends[here] = self._ends[there] = None
        there.run(there.protocol.connection_made, there)
        here.run(here.protocol.connection_made, here)
        return here

    async def connect_from_here(self, protocol: asyncio.Protocol, address: Address) -> "End":
        """From the machine whose process asks for it."""
        life = OWNER.get()
        assert life is not None
        return await self.connect(protocol, self.host_of(life.name), address)

    def host_of(self, name: str) -> str:
        """The address of a machine by its name, as `Machine` has it."""
        return f"10.0.0.{name.removeprefix('node-')}"

    def delay_s(self) -> float:
        return self._chance.uniform(*_DELAY_S) * self.slowness

    # -- faults --------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """What `source` sends does not reach `target` until `heal`."""
        self._cuts[(source, target)] = None

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def heal(self) -> None:
        self._cuts.clear()
        self.slowness = 1.0
        for end in list(self._ends):
            end.arrive()

    def reset_some(self, host: str, share: float) -> None:
        """Connections with `host` break."""
        for end in list(self._ends):
            if end.own[0] == host and self._chance.random() < share:
                end.reset(self.delay_s())

    def lose(self, life: Life, *, after_s: float) -> None:
        """The process is gone: its system says so to the others `after_s` later."""
        for listener in list(self._listeners.values()):
            if listener.life is life:
                self.forget(listener)
        for end in list(self._ends):
            if end.life is life:
                end.reset(after_s + self.delay_s())

    def closed(self, end: "End") -> None:
        self._ends.pop(end, None)


class Listener:
    """What `create_server` gives."""

    def __init__(
        self, network: Network, make: Callable[[], asyncio.BaseProtocol], address: Address, life: Life | None
    ) -> None:
        self._network = network
        self.make = make
        self.address = address
        self.life = life
        self.sockets = (self,)

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self._network.forget(self)

    async def wait_closed(self) -> None:
        pass


class End(asyncio.Transport):
    """One end of a connection: what its side writes arrives at the other a little later."""

    peer: "End"

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        protocol: asyncio.BaseProtocol,
        *,
        own: Address,
        other: Address,
        life: Life | None,
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = loop
        self.protocol = protocol
        self.own = own
        self.other = other
        self.life = life
        self._wire: deque[tuple[float, bytes]] = deque()
        """On its way here, with the time of its arrival. An empty piece is the end of the stream."""
        self._inbox: deque[bytes] = deque()
        """Arrived, and not read yet."""
        self._is_read_soon = False
        self._is_reading = True
        self._is_closed = False

    def run(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call this side's protocol as its own process would."""
        context = self._loop.outside if self.life is None else self.life.context
        self._loop.call_soon(callback, *arguments, context=context)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._is_closed:
            self.peer.send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    # -- receiving -----------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """From the other side: arrives behind what was sent before."""
        arrives_s = self._loop.time() + self._network.delay_s()
        if self._wire:
            arrives_s = max(arrives_s, self._wire[-1][0])
        self._wire.append((arrives_s, data))
        self._loop.call_at(arrives_s, self.arrive, context=self._loop.outside)

    def arrive(self) -> None:
        """Take in what is due, unless the way is cut."""
        if self._is_closed or self._network.is_cut(self.other[0], self.own[0]):
            return
        while self._wire and self._wire[0][0] <= self._loop.time():
            self._inbox.append(self._wire.popleft()[1])
        self._read_soon()

    def _read_soon(self) -> None:
        if self._inbox and self._is_reading and not self._is_read_soon:
            self._is_read_soon = True
            self.run(self._read)

    def _read(self) -> None:
        self._is_read_soon = False
        while self._inbox and self._is_reading and not self._is_closed:
            data = self._inbox.popleft()
            if not data:
                self._lose(None)
            elif isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self.protocol.get_buffer(-1))
                taken = min(len(buffer), len(data))
                buffer[:taken] = data[:taken]
                if taken < len(data):
                    self._inbox.appendleft(data[taken:])
                self.protocol.buffer_updated(taken)
            else:
                assert isinstance(self.protocol, asyncio.Protocol)
                self.protocol.data_received(data)

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._is_closed:
            self.peer.send(b"")
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    def reset(self, after_s: float) -> None:
        for end in (self, self.peer):
            self._loop.call_at(
                self._loop.time() + after_s,
                end.run,
                end._lose,
                ConnectionResetError("reset"),
                context=self._loop.outside,
            )

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._inbox.clear()
            self._wire.clear()
            self._network.closed(self)
            self.protocol.connection_lost(error)

    # -- what transports can do ----------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._read_soon()

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": self.other, "sockname": self.own}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0
