"""Sockets to requests: frames come from `FramedConnection`, go through the route table, and answers leave in order.

- An unknown API key is answered with its correlation id and error 35, then the connection is closed (C61).
- A version we do not serve of a known key closes, as Kafka does; ApiVersions alone is answered (KIP-511).
"""

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import structlog

from headrace.broker.access.rates import SAMPLE_MS
from headrace.broker.access.words import USER
from headrace.broker.deferred import Deferred
from headrace.broker.services import Broker
from headrace.doors.connection import Blocked, FramedConnection
from headrace.doors.connection_set import LANDING_SIZE, ConnectionSet
from headrace.doors.kafka.common_produce import common_produce
from headrace.doors.kafka.fetch_sessions import FetchSessions
from headrace.doors.kafka.handlers import api_versions, sasl_authenticate
from headrace.doors.kafka.login import STRANGER_FRAME_MAX, Login
from headrace.doors.kafka.metering import UNMUTED, MeteredSlot, Metering
from headrace.doors.kafka.metrics import register_kafka_metrics
from headrace.doors.kafka.noting import noted
from headrace.doors.kafka.owner import open_owner_socket, remove_owner_socket
from headrace.doors.kafka.routes import ROUTES, DirectRoute, Route
from headrace.doors.kafka.session import Door, Session
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.listening import (
    Listener,
    host_of,
    keep_certificates_fresh,
    open_listeners,
    own_listener,
    principal_or_none,
)
from headrace.doors.parting import part
from headrace.doors.settings import ListenerSettings
from headrace.doors.slots import Slot
from headrace.doors.tasks import Tasks
from headrace.errors import MalformedRequest
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import RequestHeader, encode_response, read_request_header, read_routing
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.metadata import TopicRows

if TYPE_CHECKING:
    from headrace.doors.kafka._produce import Kernel

_SIZE: Final = struct.Struct(">i")
_KEY_VERSION: Final = struct.Struct(">hh")
_REFUSAL: Final = struct.Struct(">iih")
_FETCH: Final = int(ApiKey.FETCH)
_HEADER_SIZE_MIN: Final = 8
_EXPIRY_TICK_S: Final = 0.25

log = structlog.get_logger(__name__)


class KafkaDoor:
    def __init__(
        self,
        settings: KafkaSettings,
        broker: Broker,
        listeners: Sequence[ListenerSettings] | None = None,
        *,
        owner_directory: Path | None = None,
    ) -> None:
        """`owner_directory` is where whoever owns it finds a way in without being asked."""
        self._broker = broker
        self._tasks = Tasks("kafka")
        self._door = Door(
            broker,
            settings,
            FetchSessions(settings.fetch_sessions_max),
            TopicRows(),
            self._tasks,
            common_produce(broker),
        )
        self.peers = ConnectionSet("kafka")
        self._wanted = listeners or (own_listener("kafka", settings.listen, settings.advertised),)
        self._owner_directory = owner_directory
        self._listeners: list[Listener] = []
        self.address = ("", 0)
        """Of the first listener, once it listens."""

    async def start(self) -> None:
        self._listeners = await open_listeners(self._wanted, self.new_connection)
        self.address = self._listeners[0].address
        self._broker.identity.addresses.update((each.name, each.advertised) for each in self._listeners)
        if self._owner_directory is not None:
            owner = await open_owner_socket(self._owner_directory, self.new_connection)
            owner.advertised = self._listeners[0].advertised
            self._listeners.append(owner)
        # The rest of the turn may belong to a busy neighbour: whoever is told of a flush need not wait for that.
        self._broker.produce.after_flush(self.peers.flush)
        self._broker.access.on_change.append(self._forget_grants)
        self._broker.topics.on_closed.append(self._forget_grants)
        self._tasks.spawn(self._expire_forever())
        self._tasks.spawn(keep_certificates_fresh(self._listeners))
        register_kafka_metrics(self._broker.metrics, self.peers)

    def new_connection(self, listener: Listener) -> "KafkaConnection":
        """Of a client that has come through `listener`, which need not be one of this door's own."""
        return KafkaConnection(self.peers, self._door, listener)

    def _forget_grants(self) -> None:
        for connection in list(self.peers.connections):
            if isinstance(connection, KafkaConnection):
                connection.forget_grants()
                connection.check_login()
                connection.look_for_quotas()

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_TICK_S)
            self.peers.expire(self._broker.clock.now_ms())

    async def stop(self) -> None:
        """Take no more requests, answer those whose records are on their way to the disk, then close."""
        await part(self._listeners, self.peers.connections)
        for connection in list(self.peers.connections):
            connection.close()
        if self._owner_directory is not None:
            remove_owner_socket(self._owner_directory)
        await self._tasks.stop()


class KafkaConnection(FramedConnection):
    HEADER_SIZE = 4

    def __init__(self, peers: ConnectionSet, door: Door, listener: Listener | None = None) -> None:
        """Without `listener` it is no network connection."""
        super().__init__(peers)
        self._listener = listener
        self._frame_max = door.settings.socket_request_max_bytes
        self._session = Session(door, "", peers=peers)
        self._common: Kernel | None = door.common
        has_login = listener is not None and bool(listener.settings.sasl)
        # A stranger is granted nothing, with or without access rules: the kernel knows nothing of logins.
        is_asked = door.broker.access.is_on or has_login
        self._open_topics = self._session.granted if is_asked else door.broker.topics.open_to_clients
        self._use_kernel(door.common)
        self._is_fetching = False
        """Not the slot of the fetch that waits: once answered it has the records, and they would stay in memory."""
        self._fetched: Deferred[str] | None = None
        """For a fetch behind that one."""
        if listener is not None and has_login:
            self._session.login = Login(door.broker.access, listener.settings.sasl)
            self._session.on_login = self.logged_in
            self._session.on_refused = self.finish
            self._frame_max = STRANGER_FRAME_MAX
        self._metering: Metering | None = None
        """For a client that may have a quota."""
        self._is_counted = False
        """Whether the frame that is offered has been measured, and had to wait since."""
        self._silent_ticks = 0
        self._silent_ticks_max = door.settings.connections_max_idle_ms / (_EXPIRY_TICK_S * 1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._session.peer = self.peer
        reached = transport.get_extra_info("sockname")  # None when the connection is already gone.
        if self._listener is not None:
            is_network = isinstance(reached, tuple)
            self._session.listener = self._listener.name
            self._session.advertised = self._listener.told((reached[0], reached[1]) if is_network else None)
            host = host_of(transport)
            if self._came_too_often(cast(asyncio.Transport, transport), host):
                return
            principal = principal_or_none(self._listener, transport)
            if principal is None:
                cast(asyncio.Transport, transport).abort()
                return
            self._session.guard = self._session.broker.access.guard(principal, host)
            if self._session.login is not None and not self._session.door.strangers.admit(self, host):
                self._peers.turned_away_total += 1
                cast(asyncio.Transport, transport).abort()
            self.look_for_quotas()

    def _use_kernel(self, kernel: "Kernel | None") -> None:
        self._common = kernel
        is_large = self._session.settings.socket_request_max_bytes >= LANDING_SIZE
        self._take_landed = kernel.take_all if kernel is not None and is_large else None

    def look_for_quotas(self) -> None:
        """What this client sends and reads is measured if a quota may hold for it; then no kernel serves it."""
        login, principal = self._session.login, self._session.guard.principal
        quotas = self._session.broker.access.quotas
        is_known = self._listener is not None and (login is None or login.is_done) and principal.kind == USER
        if is_known and len(quotas) and quotas.concerns(principal.name):
            if self._metering is None:
                self._metering = Metering(quotas, principal.name, self._session.broker.clock)
                self._use_kernel(None)
        elif self._metering is not None:
            metering, self._metering = self._metering, None
            self._session.fetch_bytes_max = None
            self._use_kernel(self._session.door.common)
            metering.end()

    def _came_too_often(self, transport: asyncio.Transport, host: str) -> bool:
        """Whether its address connects more often than its quota allows: it is closed, after a while, as Kafka does."""
        broker = self._session.broker
        if not len(broker.access.quotas):
            return False
        throttle_ms = min(broker.access.quotas.connect(host, broker.clock.monotonic_ms()), SAMPLE_MS)
        if throttle_ms:
            self._peers.turned_away_total += 1
            self._is_closing = True
            transport.pause_reading()
            asyncio.get_running_loop().call_later(throttle_ms / 1_000, transport.abort)
        return bool(throttle_ms)

    def expire(self, now_ms: int) -> None:
        """Called once a tick. A peer that went without a goodbye would hold its socket for ever."""
        super().expire(now_ms)
        login = self._session.login
        if login is not None:
            self._watch_login(login, now_ms)
        if self._is_heard or self._slots:
            self._is_heard = False
            self._silent_ticks = 0
            return
        self._silent_ticks += 1
        if self._silent_ticks > self._silent_ticks_max:
            self.close()

    def _watch_login(self, login: Login, now_ms: int) -> None:
        if login.is_over(now_ms):
            # Its next request ends it, unless it is a new login: the fast path must not serve that one.
            self.forget_grants()
        elif not login.is_done and self._session.door.strangers.is_overdue(self):
            log.info("nobody logged in", door="kafka", peer=self.peer)
            self.close()

    def logged_in(self) -> None:
        """They have proved who they are: from now on they are served like everybody else."""
        login = self._session.login
        assert login is not None
        assert login.principal is not None
        self._frame_max = self._session.settings.socket_request_max_bytes
        self._session.guard = self._session.broker.access.guard(login.principal, self._session.guard.host)
        self._session.door.strangers.leave(self)
        self.look_for_quotas()

    def check_login(self) -> None:
        """Users have changed: whoever is no longer one, or has another password, is no longer served."""
        login = self._session.login
        if login is not None and login.is_revoked():
            log.info("login revoked", door="kafka", principal=str(login.principal), peer=self.peer)
            self.forget_grants()
            self.close()

    def frame_size(self, view: memoryview, at: int) -> int:
        size: int = _SIZE.unpack_from(view, at)[0]
        login = self._session.login
        if login is not None and login.is_bare and 0 <= size <= self._frame_max:
            return size
        # Checked before waiting for the body: a lying length must not make us buffer two gigabytes first.
        if not _HEADER_SIZE_MIN <= size <= self._frame_max:
            raise MalformedRequest(f"frame of {size} bytes, {_HEADER_SIZE_MIN} to {self._frame_max} are possible")
        return size

    def take_frame(self, frame: memoryview, resumed: str | None) -> Blocked | None:
        login = self._session.login
        if login is not None and login.is_bare:
            return self._take_bare(login, frame)
        if self._common is not None and resumed is None:
            try:
                if self._common.take(frame, self):
                    return None
            except Exception:
                self._landing_failed()
                return None
        elif self._metering is not None:
            return self._take_measured(self._metering, frame, resumed)
        return self._take_routed(frame, resumed)

    def _take_bare(self, login: Login, frame: memoryview) -> Blocked | None:
        """A message of a login that was begun with SaslHandshake v0."""
        if login.under_way is not None:
            return Blocked(login.under_way)
        login.begin_step()
        self._session.door.tasks.spawn(self._answer_bare(bytes(frame[_SIZE.size :]), login, self.reserve()))
        return None

    async def _answer_bare(self, message: bytes, login: Login, slot: Slot) -> None:
        try:
            answer = await sasl_authenticate.prove(message, login, self._session)
        except Exception:
            log.exception("login failed", door="kafka", peer=self.peer)
            answer = None
        if answer is None:
            slot.close()
        else:
            slot.fill((_SIZE.pack(len(answer)) + answer,))

    def _take_measured(self, metering: Metering, frame: memoryview, resumed: str | None) -> Blocked | None:
        if resumed in (None, UNMUTED):
            if (unmuted := metering.muted()) is not None:
                return Blocked(unmuted)
            resumed = None
        self._is_counted = resumed is not None
        blocked = self._take_routed(frame, resumed)
        if self._slots and isinstance(taken := self._slots[-1], MeteredSlot):
            taken.handled()
        return blocked

    def _take_routed(self, frame: memoryview, resumed: str | None) -> Blocked | None:
        key, version = _KEY_VERSION.unpack_from(frame, 4)
        route = ROUTES.get(key)
        if route is None or not route.versions[0] <= version <= route.versions[1]:
            self._refuse_version(read_routing(frame, 4))
            return None
        header = read_request_header(frame, 4)
        login = self._session.login
        if login is not None:
            if login.under_way is not None:
                return Blocked(login.under_way)
            if not login.admits(key, self._session.broker.clock):
                log.warning("request before login", door="kafka", api=key, peer=self.peer)
                self.reserve().close()
                return None
        if isinstance(route, DirectRoute):
            if key == _FETCH and self._is_fetching:
                # One at a time: answers wait for their turn in memory, and a client may never read them.
                self._fetched = Deferred()
                return Blocked(self._fetched)
            slot = self._reserve_for(header, frame)
            try:
                blocked = route.handle(frame, header, slot, self._session, resumed)
            except MalformedRequest:
                self.withdraw(slot)
                raise
            except Exception:
                log.exception("request failed", door="kafka", api=key, version=version, peer=self.peer)
                slot.close()
                return None
            if blocked is not None:
                self.withdraw(slot)
            elif key == _FETCH and slot.chunks is None:
                self._is_fetching = True
                slot.on_filled = self._note_fetched
            return blocked
        self._session.client_id = header.client_id
        request = route.request.decode(frame, version, header.body_at)
        slot = self._reserve_for(header, frame)
        try:
            answer = self._served(route, request, version)
        except Exception:
            self._failed(header, slot)
            return None
        self._answer(answer, header, slot)
        return None

    def _reserve_for(self, header: RequestHeader, frame: memoryview) -> Slot:
        metering = self._metering
        if metering is None:
            return self.reserve()
        client = header.client_id or ""
        slot = metering.slot(self, header.api_key, header.api_version, client)
        self._slots.append(slot)
        if not self._is_counted:
            metering.received(slot, len(frame))
        self._session.fetch_bytes_max = metering.window_bytes(client)
        return slot

    def _served(self, route: Route, request: Message, version: int) -> Message | Awaitable[Message]:
        session = self._session
        if session.guard.is_on and route.right.guard is not None:
            return route.right.guard(
                request, version, session, lambda allowed: noted(route.key, route.handle, allowed, version, session)
            )
        return noted(route.key, route.handle, request, version, session)

    def forget_grants(self) -> None:
        """Something has changed that an answer depends on: the fast path serves nothing until it has been asked again."""
        self._session.granted.clear()

    def _note_fetched(self) -> None:
        self._is_fetching = False
        fetched, self._fetched = self._fetched, None
        if fetched is not None:
            # Not at once: the frame that waits is served from the loop, not from within another answer.
            asyncio.get_running_loop().call_soon(fetched.resolve, "")

    def closed(self) -> None:
        # What leads back here would keep the connection, with all it has, until a full collection.
        self._fetched = None
        self._session.on_login = self._session.on_refused = None
        self._session.door.strangers.leave(self)

    def _answer(self, answer: Message | Awaitable[Message], header: RequestHeader, slot: Slot) -> None:
        if isinstance(answer, Message):
            slot.fill((_encoded(answer, header, slot),))
        elif isinstance(answer, Deferred):
            answer.then(lambda done: self._answer_later(done, header, slot))
        else:
            self._session.door.tasks.spawn(self._answer_awaited(answer, header, slot))

    def _answer_later(self, done: "Deferred[Message]", header: RequestHeader, slot: Slot) -> None:
        try:
            slot.fill((_encoded(done.result(), header, slot),))
        except Exception:
            self._failed(header, slot)

    async def _answer_awaited(self, answer: Awaitable[Message], header: RequestHeader, slot: Slot) -> None:
        try:
            slot.fill((_encoded(await answer, header, slot),))
        except Exception:
            self._failed(header, slot)

    def _failed(self, header: RequestHeader, slot: Slot) -> None:
        """What nobody foresaw: its stack is logged, and the client's connection ends rather than hang."""
        log.exception("request failed", door="kafka", api=header.api_key, version=header.api_version, peer=self.peer)
        slot.close()

    def _refuse_version(self, header: RequestHeader) -> None:
        self._peers.refused_frames_total += 1
        slot = self.reserve()
        if header.api_key == ApiKey.API_VERSIONS:
            slot.fill((encode_response(api_versions.unsupported(), 0, header.correlation_id),))
            return
        log.warning(
            "request refused",
            door="kafka",
            api=header.api_key,
            version=header.api_version,
            peer=self.peer,
            reason="unknown key" if header.api_key not in ROUTES else "unsupported version",
        )
        if header.api_key not in ROUTES:
            slot.fill((_REFUSAL.pack(6, header.correlation_id, ErrorCode.UNSUPPORTED_VERSION),))
            slot = self.reserve()
        slot.close()


def _encoded(answer: Message, header: RequestHeader, slot: Slot) -> bytearray:
    if isinstance(slot, MeteredSlot):
        slot.tell(answer)
    return encode_response(answer, header.api_version, header.correlation_id)
