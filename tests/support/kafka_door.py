"""The Kafka door without a network: connections over a transport that only remembers, a real log below."""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.support.logs import NOW_MS, Opened, opened
from tests.support.metastores import ManualClock

from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.fetch import Fetch
from headrace.broker.forwarding import Forwarding
from headrace.broker.identity import Identity
from headrace.broker.produce import Produce
from headrace.broker.services import Broker
from headrace.broker.topics import Topics
from headrace.broker.transactions.participation import Participation
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.kafka.common_produce import common_produce
from headrace.doors.kafka.fetch_sessions import FetchSessions
from headrace.doors.kafka.server import KafkaConnection
from headrace.doors.kafka.session import Door
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.listening import Listener
from headrace.doors.settings import ListenerSettings, Mechanism
from headrace.doors.tasks import Tasks
from headrace.telemetry.metrics import Metrics
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.metadata import TopicRows

Response = TypeVar("Response", bound=Message)
RING_BYTES = 8 << 20


class Wire(asyncio.Transport):
    """The other end of a connection: what was written to it, and whether it would be read from."""

    def __init__(self, connection: KafkaConnection) -> None:
        super().__init__()
        self._connection = connection
        self._correlation_ids = itertools.count(1)
        self.written = bytearray()
        self.unsent_bytes = 0
        """What the connection is told that its client has not taken."""
        self.is_read_from = True
        self.is_closed = False

    # -- the transport, as the connection sees it ----------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # Any: asyncio's own signature
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:  # Any: asyncio's own signature
        for data in list_of_data:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_read_from = False

    def resume_reading(self) -> None:
        self.is_read_from = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        self.close()

    # -- the client, as the test plays it ------------------------------------------------------------------------

    def feed(self, data: bytes | bytearray) -> None:
        """Bytes as they come off a socket: as much at once as there is room for."""
        view = memoryview(bytes(data))
        while view and not self.is_closed:
            assert self.is_read_from, "the connection does not read"
            buffer = self._connection.get_buffer(-1)
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            self._connection.buffer_updated(size)
            view = view[size:]

    def send(self, request: Message, version: int) -> int:
        correlation_id = next(self._correlation_ids)
        self.feed(encode_request(request, version, correlation_id, "test"))
        return correlation_id

    def frames(self) -> list[bytes]:
        """Every whole answer so far, without its size."""
        found, at = [], 0
        while len(self.written) - at >= 4:
            (size,) = struct.unpack_from(">i", self.written, at)
            found.append(bytes(self.written[at + 4 : at + 4 + size]))
            at += 4 + size
        return found

    def answered(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames()]

    def answer(self, correlation_id: int, kind: type[Response], version: int) -> Response:
        (frame,) = (frame for frame in self.frames() if struct.unpack_from(">i", frame)[0] == correlation_id)
        _, at = read_response_header(memoryview(frame), kind.API_KEY, version)
        return kind.decode(frame, version, at)


class OpenedDoor:
    def __init__(self, door: Door, log: Opened, clock: ManualClock) -> None:
        self.door = door
        self.log = log
        self.clock = clock
        self.peers = ConnectionSet("kafka")
        self.topics = door.broker.topics
        door.broker.access.on_change.append(self._forget_grants)
        self.topics.on_closed.append(self._forget_grants)

    def _forget_grants(self) -> None:
        """As `KafkaDoor` does."""
        for connection in self.peers.connections:
            cast(KafkaConnection, connection).forget_grants()

    def connect(self, principal: str | None = None, *, sasl: Sequence[Mechanism] = ()) -> Wire:
        """As `principal`, where the door asks who somebody is; with `sasl` as a stranger who has to log in."""
        settings = ListenerSettings(
            name="kafka", door="kafka", listen="127.0.0.1:9092", principal=principal, sasl=tuple(sasl)
        )
        listener = Listener(settings, advertised=("localhost", 9092))
        connection = KafkaConnection(self.peers, self.door, listener)
        wire = Wire(connection)
        connection.connection_made(wire)
        return wire

    async def settle(self) -> None:
        """Let the disk have what it is given, and the answers leave."""
        for _ in range(3):
            await self.log.store.wal.drain()
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def opened_door(
    directory: Path,
    topics: Sequence[str] = (),
    *,
    config: dict[str, str] | None = None,
    is_pure: bool = False,
    security: SecuritySettings | None = None,
    **settings: Any,
) -> AsyncIterator[OpenedDoor]:
    """Any: whatever `KafkaSettings` takes. With `is_pure` no request is served in C."""
    clock = ManualClock(NOW_MS)
    metastore = await EmbeddedMetastore.open()
    cluster = await Cluster.load(metastore, clock)
    await cluster.register("b1", pb.BrokerRegistration(host="localhost"))
    tasks = Tasks("kafka")
    try:
        async with opened(directory, partitions=0, wal_capacity_bytes=RING_BYTES) as log:
            services = Topics(cluster, log.store, defaults={})
            for name in topics:
                await services.create(name, partitions=1, config=config or {})
            access = Access(security or SecuritySettings(), metastore)
            await access.load()
            following = asyncio.create_task(access.follow())
            nothing = cast(Any, None)
            broker = Broker(
                identity=Identity("cluster", 1, "b1", 1, addresses={"kafka": ("localhost", 9092)}),  # type: ignore[arg-type]
                topics=services,
                produce=Produce(log.store, clock),
                fetch=Fetch(clock),
                producer_ids=nothing,
                offsets=nothing,
                groups=nothing,
                transactions=nothing,
                participation=Participation(nothing, services),
                forwarding=Forwarding(services, nothing, nothing),
                clock=clock,
                metrics=Metrics(),
                access=access,
            )
            kafka = KafkaSettings(**settings)
            take_common = None if is_pure else common_produce(broker)
            yield OpenedDoor(
                Door(broker, kafka, FetchSessions(kafka.fetch_sessions_max), TopicRows(), tasks, take_common),
                log,
                clock,
            )
            following.cancel()
            await broker.fetch.stop()
            await tasks.stop()
    finally:
        await metastore.close()
