"""One client of a JSON door: requests are done one after the other, as far as the client can tell.

Produces that follow each other run side by side and share a flush. Every other request waits until all before it
are answered. All clients of a door share its turns on the loop: who pipelines more than fits into one waits for the next.

What a request means is the subclass's business; this class knows only the kinds of outcome there are.
"""

import asyncio
import functools
import socket
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, Union

import structlog

from headrace.broker.deferred import Deferred
from headrace.broker.forwarding import Forwarding
from headrace.broker.produce import Produce
from headrace.doors.connection import Blocked, FramedConnection
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.gathering import Gathering
from headrace.doors.listening import Listener, keep_certificates_fresh, open_listeners
from headrace.doors.parting import part
from headrace.doors.settings import ListenerSettings
from headrace.doors.slots import Slot
from headrace.doors.tasks import Tasks
from headrace.doors.turns import Turns
from headrace.errors import HeadraceError, MalformedRequest, StorageFull, TimedOut

Req = TypeVar("Req")
Res = TypeVar("Res")

Outcome: TypeAlias = Union[Res, Deferred[Res], Coroutine[Any, Any, Res], AsyncIterator[Res]]  # noqa: UP007 - generic
"""What doing a request gives: its answer, a promise of it, work that ends in it, or a stream of answers."""

SWEEP_INTERVAL_S: Final = 0.25
KEEPALIVE_S: Final = 30
"""A client whose machine has vanished is asked every half minute, and given up when it does not answer."""

log = structlog.get_logger(__name__)


class Conversation(FramedConnection, Generic[Req, Res]):
    def __init__(self, hall: "Hall") -> None:
        super().__init__(hall)
        self._hall = hall
        self._drained: Deferred[str] | None = None
        self._writable: asyncio.Event | None = None
        self._is_streaming = False
        self._streaming: asyncio.Task[Any] | None = None
        self._is_half_closed = False
        self._unanswered = 0
        """Requests under way. Answered ones may still have their slots, until the end of the turn."""
        self._heard_ms = hall.now_ms

    # -- for the door ----------------------------------------------------------------------------------------------

    @abstractmethod
    def decode(self, frame: memoryview) -> Req:
        """`MalformedRequest` ends the connection; any other of our errors is answered."""

    @abstractmethod
    def may_overlap(self, request: Req) -> bool: ...

    @abstractmethod
    def start(self, request: Req) -> Outcome[Res]: ...

    @abstractmethod
    def encode(self, response: Res) -> bytes: ...

    @abstractmethod
    def describe(self, error: Exception) -> bytes:
        """The answer to a request that failed, and the last words before a connection is closed."""

    def timeout_ms(self, request: Req) -> int:
        return self._hall.handler_timeout_ms

    def _overdue(self) -> HeadraceError:
        """Why an answer has not come in time."""
        return _LOG_FULL if self._hall.gathering.is_waiting_for_room else _OVERDUE

    # -- requests --------------------------------------------------------------------------------------------------

    def take_frame(self, frame: memoryview, resumed: str | None) -> Blocked | None:
        self._heard_ms = self._hall.now_ms
        if self._hall.turns.is_over():
            return Blocked(self._hall.turns.next())
        try:
            request = self.decode(frame)
        except MalformedRequest:
            raise
        except HeadraceError as error:
            self.reserve().fill((self.describe(error),))
            return None
        if self._unanswered and (self._is_streaming or not self.may_overlap(request)):
            self._drained = Deferred()
            return Blocked(self._drained)
        self._begin(request)
        return None

    def _begin(self, request: Req) -> None:
        slot = self.reserve()
        self._unanswered += 1
        try:
            outcome = self.start(request)
        except HeadraceError as error:
            self._fail(slot, error)
            return
        except Exception as error:
            log.exception("request failed unexpectedly", door=self._hall.name)
            self._fail(slot, error)
            return
        if isinstance(outcome, Deferred):
            slot.expires_ms = self._hall.now_ms + self.timeout_ms(request)
            outcome.then(functools.partial(self._settle, slot))
        elif isinstance(outcome, Coroutine):
            self._hall.spawn(self._run(slot, outcome))
        elif isinstance(outcome, AsyncIterator):
            self._is_streaming = True
            self._hall.spawn(self._stream(slot, outcome))
        else:
            self._settle(slot, Deferred.resolved(outcome))

    def _settle(self, slot: Slot, outcome: Deferred[Res]) -> None:
        if slot.chunks is not None:
            return
        try:
            answer = self.encode(outcome.result())
        except HeadraceError as error:
            self._fail(slot, error)
        except Exception as error:
            log.exception("request failed unexpectedly", door=self._hall.name)
            self._fail(slot, error)
        else:
            self._answer(slot, answer)

    def _fail(self, slot: Slot, error: Exception) -> None:
        if slot.chunks is not None:
            return
        self._answer(slot, self.describe(error))

    def _answer(self, slot: Slot, answer: bytes) -> None:
        self._unanswered -= 1
        slot.fill((answer,))
        if self._drained is not None and not self._unanswered:
            drained, self._drained = self._drained, None
            drained.resolve("")

    async def _run(self, slot: Slot, work: Coroutine[Any, Any, Res]) -> None:
        deferred: Deferred[Res] = Deferred()
        try:
            async with asyncio.timeout(self._hall.handler_timeout_ms / 1000):
                deferred.resolve(await work)
        except TimeoutError:
            deferred.reject(_OVERDUE)
        except Exception as error:
            # Settled like any other outcome; what we did not foresee is logged there.
            deferred.reject(error)
        self._settle(slot, deferred)

    async def _stream(self, slot: Slot, answers: AsyncIterator[Res]) -> None:
        self._streaming = asyncio.current_task()
        failure: Exception | None = None
        try:
            async for answer in answers:
                if self._transport is None or self._transport.is_closing():
                    break
                self._transport.write(self.encode(answer))
                await self._until_writable()
        except Exception as error:
            if not isinstance(error, HeadraceError):
                log.exception("stream failed unexpectedly", door=self._hall.name)
            failure = error
        # Over before its last answer: that one lets the next request begin, which may be a stream again.
        self._streaming = None
        self._is_streaming = False
        if failure is not None:
            self._fail(slot, failure)
        elif slot.chunks is None:
            self._answer(slot, b"")

    async def _until_writable(self) -> None:
        if self._is_writing_paused:
            self._writable = asyncio.Event()
            await self._writable.wait()
            self._writable = None

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)

    def refuse(self, error: MalformedRequest) -> None:
        self.reserve().fill((self.describe(error),))

    def eof_received(self) -> bool:
        """A client may close its side and still wait for answers; the next sweep after the last one closes ours."""
        self._is_half_closed = True
        if not self._slots and self._buffer is not None:
            self._hall.refused_frames_total += 1
        return bool(self._slots)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writable is not None:
            self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # A stream may wait for records that never come; nobody would ever tell it that its client has gone.
        if self._streaming is not None:
            self._streaming.cancel()

    def expire(self, now_ms: int) -> None:
        for slot in list(self._slots):
            if slot.chunks is None and slot.expires_ms and slot.expires_ms <= now_ms:
                self._fail(slot, self._overdue())
        if self._slots:
            return
        if self._is_half_closed or now_ms - self._heard_ms > self._hall.idle_timeout_ms:
            self.close()

    @property
    def owes_answer(self) -> bool:
        """Whether somebody waits for an answer; a stream has no end to wait for."""
        return bool(self._slots) and not self._is_streaming


_OVERDUE: Final = TimedOut("the request took too long; it may still be done")
_LOG_FULL: Final = StorageFull("the log is full; the records wait, and may still be kept")


class Hall(ConnectionSet):
    """All conversations of one door: the listening socket, their tasks, their clock, and the records they append."""

    def __init__(
        self,
        name: str,
        produce: Produce,
        monotonic_ms: Callable[[], int],
        *,
        idle_timeout_ms: int,
        handler_timeout_ms: int,
        forwarding: Forwarding | None = None,
    ) -> None:
        super().__init__(name)
        self._monotonic_ms = monotonic_ms
        self.idle_timeout_ms = idle_timeout_ms
        self.handler_timeout_ms = handler_timeout_ms
        self.now_ms = monotonic_ms()
        """Looked up now and then: nobody's patience is measured more exactly."""
        self.turns = Turns()
        self.gathering = Gathering(produce, self.turns, forwarding)
        self._listeners: list[Listener] = []
        self._tasks = Tasks(name)

    async def open(
        self, listeners: Sequence[ListenerSettings], new_connection: Callable[[Listener], FramedConnection]
    ) -> list[Listener]:
        self._listeners = await open_listeners(listeners, new_connection)
        self._tasks.spawn(self._sweep_forever())
        self._tasks.spawn(keep_certificates_fresh(self._listeners))
        return self._listeners

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)

    async def close(self) -> None:
        """Take no more clients, give those who wait a moment to be answered, then end."""
        self.gathering.flush_all()
        await part(self._listeners, self.connections)
        await self._tasks.stop()
        for connection in list(self.connections):
            connection.close()
        self.turns.close()
        self.gathering.stop()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.now_ms = self._monotonic_ms()
            self.expire(self.now_ms)
