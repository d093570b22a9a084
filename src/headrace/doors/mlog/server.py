"""mlog over TCP: the listening socket, and frames to requests to answers.

A frame that cannot be understood is answered with a last RPCError, then the connection ends. A request that fails is
answered with an RPCError, and the connection goes on. Answers sent as requests are refused, not ignored.
"""

import asyncio
import dataclasses
import struct
from collections.abc import Sequence
from typing import Final

from headrace.broker.access.words import ANONYMOUS
from headrace.broker.services import Broker
from headrace.doors.conversation import Conversation, Hall, Outcome
from headrace.doors.listening import Address, Listener, host_of, own_listener, principal_or_none
from headrace.doors.mlog.errors import Refusal, answer_to
from headrace.doors.mlog.metrics import MlogMetrics
from headrace.doors.mlog.routes import ROUTES, needs_of
from headrace.doors.mlog.session import Session
from headrace.doors.mlog.settings import MlogSettings
from headrace.doors.rights import check
from headrace.doors.settings import ListenerSettings
from headrace.errors import MalformedRequest
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import decode, encode
from headrace.wire.mlog.codes import FRAME_HEADER_SIZE, AckMode, ErrorCode

_HEADER: Final = struct.Struct(">HI")
_PRODUCES: Final = frozenset({m.ProduceRequest, m.ProduceBatchRequest})


class MlogConnection(Conversation[m.Message, m.Message]):
    HEADER_SIZE = FRAME_HEADER_SIZE

    def __init__(self, hall: Hall, session: Session, listener: Listener) -> None:
        super().__init__(hall)
        self._session = session
        self._listener = listener
        self._frame_bytes_max = session.settings.frame_max_bytes
        session.metrics.active_connections += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        reached = transport.get_extra_info("sockname")  # None when the connection is already gone.
        told = self._listener.told((reached[0], reached[1]) if reached else None)
        principal = principal_or_none(self._listener, transport)
        if principal is None:
            self.close()
            return
        guard = self._session.broker.access.guard(principal, host_of(transport))
        self._session = dataclasses.replace(self._session, address=show_address(told), guard=guard)

    def frame_size(self, view: memoryview, at: int) -> int:
        size: int = _HEADER.unpack_from(view, at)[1]
        if size > self._frame_bytes_max:
            raise MalformedRequest("protocol: frame exceeds max size")
        return size

    def decode(self, frame: memoryview) -> m.Message:
        metrics = self._session.metrics
        metrics.requests_total += 1
        metrics.bytes_in_total += len(frame)
        return decode(_HEADER.unpack_from(frame)[0], frame[FRAME_HEADER_SIZE:])

    def may_overlap(self, request: m.Message) -> bool:
        return type(request) in _PRODUCES

    def timeout_ms(self, request: m.Message) -> int:
        if type(request) in _PRODUCES and getattr(request, "Acks", 0) == AckMode.ALL:
            return self._session.settings.ack_timeout_ms
        return self._session.settings.handler_timeout_ms

    def start(self, request: m.Message) -> Outcome[m.Message]:
        route = ROUTES.get(type(request))
        if route is None:
            raise Refusal(ErrorCode.UNKNOWN, f"{type(request).__name__} is no request")
        if self._session.guard.is_on:
            check(needs_of(request), request, self._session.guard)
        return route.handle(request, self._session)

    def encode(self, response: m.Message) -> bytes:
        answer = encode(response)
        self._session.metrics.bytes_out_total += len(answer)
        return answer

    def describe(self, error: Exception) -> bytes:
        metrics = self._session.metrics
        metrics.errors_total += 1
        if isinstance(error, MalformedRequest):
            metrics.malformed_total += 1
        return self.encode(answer_to(error))

    def closed(self) -> None:
        self._session.metrics.active_connections -= 1


class MlogDoor:
    def __init__(
        self, settings: MlogSettings, broker: Broker, listeners: Sequence[ListenerSettings] | None = None
    ) -> None:
        self._settings = settings
        self._listeners = listeners or (own_listener("mlog", settings.listen, settings.advertised),)
        self._broker = broker
        self._hall = Hall(
            "mlog",
            broker.produce,
            broker.clock.monotonic_ms,
            idle_timeout_ms=settings.idle_timeout_ms,
            handler_timeout_ms=settings.handler_timeout_ms,
        )
        self.address: tuple[str, int] = ("", 0)
        """Where the door listens, once it does."""

    async def start(self) -> None:
        metrics = MlogMetrics()
        self._broker.metrics.register(metrics)
        session = Session(
            self._broker, self._settings, self._hall.gathering, metrics, self._broker.access.guard(ANONYMOUS, ""), ""
        )
        opened = await self._hall.open(self._listeners, lambda listener: MlogConnection(self._hall, session, listener))
        self.address = opened[0].address
        self._broker.identity.addresses.update((each.name, each.advertised) for each in opened)

    async def stop(self) -> None:
        await self._hall.close()


def show_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
