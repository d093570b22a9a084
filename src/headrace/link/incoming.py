"""One connection from another broker: its calls are carried out in the order in which they come, and answered as they end.

Nothing is done for a connection before it has said who calls, and that it means this broker in this incarnation. A newer connection
of the same broker ends the one before: what is still on its way there comes too late to be carried out.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from headrace.errors import Fault, HeadraceError, MalformedRequest, StaleEpoch, TooLarge
from headrace.link.metrics import LinkMetrics
from headrace.link.party import Party, Serve
from headrace.link.refusals import refusal_of
from headrace.telemetry.logging import get_logger
from headrace.wire.peer import frames
from headrace.wire.peer.frames import Answer, Call, Hello, Ping, Pong, Refusal, Welcome

HELLO_S: Final = 5.0
"""Whoever has not said who they are by then is not a broker."""
SERVED_MAX: Final = 4_096
"""Calls of one broker under way; beyond that nothing more is read."""
SERVED_BYTES_MAX: Final = 64 * 1024 * 1024

log = get_logger(__name__)


class Incoming(asyncio.Protocol):
    def __init__(
        self,
        *,
        note: Callable[["Incoming"], None],
        admit: Callable[["Incoming", Hello], None],
        forget: Callable[["Incoming"], None],
        serve: Serve,
        metrics: LinkMetrics,
    ) -> None:
        """`note` is told of the connection, `forget` of its end. `admit` raises for a caller that is not to be served."""
        self.caller: Party | None = None
        self._note = note
        self._admit = admit
        self._forget = forget
        self._serve = serve
        self._metrics = metrics
        self._reader = frames.frame_reader()
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[asyncio.Task[None], int] = {}
        """Calls under way, with the size of each."""
        self._bytes = 0
        self._is_congested = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Nothing that it still sends is read. What it has asked for is carried out, and answered to nobody."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._forget(self)

    def cancel(self) -> None:
        """This broker stops: nothing is carried out any more."""
        self.end()
        for task in list(self._tasks):
            task.cancel()

    # -- the protocol --------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self._go_on()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class.
        self._note(self)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self.end)

    def connection_lost(self, error: Exception | None) -> None:
        self.end()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._metrics.link_received_bytes_total += len(data)
        self._reader.receive(data)
        self._drain()

    def _drain(self) -> None:
        try:
            while not self._is_over and not self._is_full and (frame := self._reader.next_frame()) is not None:
                self._take(frames.decode(frame.header[0], frame.payload))
        except (MalformedRequest, TooLarge) as error:
            log.warning("connection of a broker ended", caller=self._name, reason=str(error))
            self.end()

    @property
    def _is_full(self) -> bool:
        """Nothing more is read, of calls that are under way or of answers that nobody takes."""
        return self._is_congested or len(self._tasks) >= SERVED_MAX or self._bytes >= SERVED_BYTES_MAX

    def _take(self, message: frames.Message) -> None:
        match message:
            case Hello() if self.caller is None:
                self._greet(message)
            case Call() if self.caller is not None:
                self._begin(self.caller, message)
            case Ping() if self.caller is not None:
                self._send(Pong())
            case _:
                raise MalformedRequest(f"a {type(message).__name__} out of place")

    def _greet(self, hello: Hello) -> None:
        try:
            self._admit(self, hello)
        except HeadraceError as error:
            log.warning("a broker was not let in", caller=hello.broker, reason=str(error))
            self._send(refusal_of(0, error))
            assert self._transport is not None
            self._is_over = True
            self._transport.close()
            self._forget(self)
            return
        self.caller = Party(hello.broker, hello.broker_epoch)
        if self._timer is not None:
            self._timer.cancel()
        self._send(Welcome(frames.VERSION))

    def _begin(self, caller: Party, call: Call) -> None:
        task = asyncio.ensure_future(self._run(caller, call))
        self._tasks[task] = len(call.body)
        self._bytes += len(call.body)
        task.add_done_callback(self._ended)
        if self._is_full and self._transport is not None:
            self._transport.pause_reading()

    async def _run(self, caller: Party, call: Call) -> None:
        answer: Answer | Refusal
        try:
            answer = Answer(call.number, await self._serve(caller, call.kind, call.body))
        except HeadraceError as error:
            answer = refusal_of(call.number, error)
        except Exception as error:
            log.error("a call of another broker failed", caller=caller.broker, kind=call.kind, exc_info=error)
            answer = refusal_of(call.number, Fault(f"unexpected {error!r}"))
        self._send(answer)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        was_full = self._is_full
        self._bytes -= self._tasks.pop(task)
        if was_full:
            self._go_on()

    def _go_on(self) -> None:
        if not self._is_full and not self._is_over:
            assert self._transport is not None
            self._transport.resume_reading()
            self._drain()

    def _send(self, message: frames.Message) -> None:
        if self._is_over or self._transport is None:
            return
        try:
            frame = frames.encode(message)
        except TooLarge as error:
            assert isinstance(message, Answer)
            frame = frames.encode(refusal_of(message.number, error))
        self._metrics.link_sent_bytes_total += len(frame)
        self._transport.write(frame)

    @property
    def _name(self) -> str:
        return "nobody" if self.caller is None else self.caller.broker


def check_hello(hello: Hello, *, cluster_id: str, own: Party, known_epoch: int | None) -> None:
    """Raises unless the caller is of this cluster, means this incarnation, and has not been replaced itself."""
    if hello.version < 1:
        raise MalformedRequest(f"version {hello.version} of the link")
    if hello.cluster_id != cluster_id:
        raise StaleEpoch(f"{hello.broker} is of cluster {hello.cluster_id}, this is {cluster_id}")
    if (hello.to_broker, hello.to_epoch) != own:
        raise StaleEpoch(
            f"{hello.broker} means {hello.to_broker} epoch {hello.to_epoch}, this is {own.broker} epoch {own.epoch}"
        )
    if known_epoch is not None and hello.broker_epoch < known_epoch:
        raise StaleEpoch(f"{hello.broker} calls with epoch {hello.broker_epoch}, the newest is {known_epoch}")
