"""RustLog over TCP: the listening socket, and frames to requests to answers.

Requests of one connection are done one at a time, in order. Malformed input is answered with a last Error 400, then
the connection ends; a request that is merely wrong is answered, and the connection goes on.
"""

import asyncio
import dataclasses
import struct
from collections.abc import Sequence
from typing import Final

from headrace.broker.access.words import ANONYMOUS
from headrace.broker.services import Broker
from headrace.doors.conversation import Conversation, Hall, Outcome
from headrace.doors.listening import Listener, host_of, own_listener, principal_or_none
from headrace.doors.rights import check
from headrace.doors.rustlog.errors import answer_to
from headrace.doors.rustlog.metrics import RustLogMetrics
from headrace.doors.rustlog.routes import ROUTES
from headrace.doors.rustlog.session import Session
from headrace.doors.rustlog.settings import RustLogSettings
from headrace.doors.settings import ListenerSettings
from headrace.errors import MalformedRequest, TopicNotFound
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import decode_request, encode
from headrace.wire.rustlog.codes import LENGTH_FIELD_SIZE, ConnectionState

_LENGTH: Final = struct.Struct(">I")


class RustLogConnection(Conversation[m.Request, m.Response]):
    HEADER_SIZE = LENGTH_FIELD_SIZE

    def __init__(self, hall: Hall, session: Session, listener: Listener) -> None:
        super().__init__(hall)
        self._listener = listener
        self._session = session
        self._frame_bytes_max = session.settings.frame_max_bytes
        session.metrics.active_connections += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        principal = principal_or_none(self._listener, transport)
        if principal is None:
            self.close()
            return
        guard = self._session.broker.access.guard(principal, host_of(transport))
        self._session = dataclasses.replace(self._session, guard=guard)

    @property
    def state(self) -> ConnectionState:
        if self._transport is None:
            return ConnectionState.CLOSED
        if self._is_closing:
            return ConnectionState.ERROR
        return ConnectionState.REQUEST_ACTIVE if self._slots else ConnectionState.CONNECTED

    def frame_size(self, view: memoryview, at: int) -> int:
        (size,) = _LENGTH.unpack_from(view, at)
        if size > self._frame_bytes_max:
            raise MalformedRequest(f"frame of {size} bytes, limit {self._frame_bytes_max}")
        if not size:
            raise MalformedRequest("empty frame")
        return int(size)

    def decode(self, frame: memoryview) -> m.Request:
        metrics = self._session.metrics
        metrics.requests_total += 1
        metrics.bytes_in_total += len(frame)
        return decode_request(frame[LENGTH_FIELD_SIZE:])

    def may_overlap(self, request: m.Request) -> bool:
        return type(request) is m.Produce

    def start(self, request: m.Request) -> Outcome[m.Response]:
        route, guard = ROUTES[type(request)], self._session.guard
        if guard.is_on:
            try:
                check(route.needs, request, guard)
            except TopicNotFound:
                if route.if_not_found is None:
                    raise
                return route.if_not_found
        return route.handle(request, self._session)

    def encode(self, response: m.Response) -> bytes:
        answer = encode(response)
        self._session.metrics.bytes_out_total += len(answer)
        if type(response) is m.Error:
            self._session.metrics.errors_total += 1
        return answer

    def describe(self, error: Exception) -> bytes:
        if isinstance(error, MalformedRequest):
            self._session.metrics.malformed_total += 1
        return self.encode(answer_to(error, self._session))

    def closed(self) -> None:
        self._session.metrics.active_connections -= 1


class RustLogDoor:
    def __init__(
        self, settings: RustLogSettings, broker: Broker, listeners: Sequence[ListenerSettings] | None = None
    ) -> None:
        self._settings = settings
        self._listeners = listeners or (own_listener("rustlog", settings.listen, settings.advertised),)
        self._broker = broker
        self._hall = Hall(
            "rustlog",
            broker.produce,
            broker.clock.monotonic_ms,
            idle_timeout_ms=settings.idle_timeout_ms,
            handler_timeout_ms=settings.handler_timeout_ms,
            forwarding=broker.forwarding,
        )
        self.address: tuple[str, int] = ("", 0)
        """Where the door listens, once it does."""

    async def start(self) -> None:
        metrics = RustLogMetrics()
        self._broker.metrics.register(metrics)
        nobody = self._broker.access.guard(ANONYMOUS, "")
        session = Session(self._broker, self._settings, self._hall.gathering, metrics, nobody)
        opened = await self._hall.open(
            self._listeners, lambda listener: RustLogConnection(self._hall, session, listener)
        )
        self.address = opened[0].address
        self._broker.identity.addresses.update((each.name, each.advertised) for each in opened)

    async def stop(self) -> None:
        await self._hall.close()
