"""Logjam's four sockets on the event loop: poll, then drain.

ZeroMQ tells through one file descriptor that *something* has changed, once; after that the sockets must be drained
until they are empty, or asked again. So each drain takes messages until its turn is over, hands them to the log
together, and comes back in the next one if there may be more: other doors get their turns in between.
"""

import asyncio
import socket as network
from collections.abc import Callable, Sequence
from typing import Final

import structlog
import zmq

from headrace.broker.access.words import Principal
from headrace.broker.services import Broker
from headrace.doors.listening import Address, Listener, own_listener, parse_address
from headrace.doors.logjam.curve import Curve
from headrace.doors.logjam.guard import AcceptGuard
from headrace.doors.logjam.intake import Intake
from headrace.doors.logjam.live import LivePublisher
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.publisher import Publisher
from headrace.doors.logjam.routes import route_pushed, route_routed
from headrace.doors.logjam.send_room import SendRoom
from headrace.doors.logjam.session import Rights, Session
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.settings import ListenerSettings
from headrace.doors.tasks import Tasks
from headrace.doors.turns import Turns
from headrace.errors import cannot_listen
from headrace.wire.logjam.messages import ReplyForm

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""ZeroMQ closes a connection that announces a larger frame, before it allocates anything for it."""
FRAMES_MAX: Final = 64
"""Frames of one message that are kept; the protocol's have up to seven, with those that routers add."""
FRAMES_AT_ONCE: Final = 256
"""Frames that are taken before it is asked whether the turn is over: less than a millisecond."""
REPLIES_MAX: Final = 10_000
"""Replies that ZeroMQ queues for a client that does not read them."""
UNREAD_MS_MAX: Final = 30_000
"""A peer that takes nothing of what is sent to it for this long is disconnected, with what is queued for it."""
LINGER_MS: Final = 200
NAME_LOOKUP_S: Final = 2.0

log = structlog.get_logger(__name__)


class LogjamDoor:
    def __init__(
        self, settings: LogjamSettings, broker: Broker, listeners: Sequence[ListenerSettings] | None = None
    ) -> None:
        self._settings = settings
        self._listener = Listener((listeners or (own_listener("logjam", settings.listen_router, None),))[0])
        self._broker = broker
        self._tasks = Tasks("logjam")
        self._turns = Turns()
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._inlets: list[Inlet] = []
        self._guards: list[AcceptGuard] = []
        self._session: Session | None = None
        self._curve: Curve | None = None
        self.addresses: dict[str, Address] = {}
        """Where each socket listens, by its name in endpoints.json, once it does."""

    @property
    def address(self) -> Address:
        return self.addresses.get("logjam_router", ("", 0))

    async def start(self) -> None:
        settings, broker = self._settings, self._broker
        metrics = LogjamMetrics()
        broker.metrics.register(metrics)
        senders = self._open_curve()
        router = self._bind(zmq.ROUTER, settings.listen_router, "logjam_router")
        pull = self._bind(zmq.PULL, settings.listen_pull, "logjam_pull")
        pub = self._bind(zmq.XPUB, settings.listen_pub, "logjam_pub")
        live_pub = self._bind(zmq.XPUB, settings.listen_live, "logjam_live")
        host = settings.host or await _own_name()
        publisher = Publisher(
            SendRoom(pub, settings.send_high_water_mark), broker.clock, metrics, device_number=settings.device_number
        )
        live = LivePublisher(SendRoom(live_pub, settings.send_high_water_mark), broker.clock, metrics)
        own = Rights(broker.access.guard(self._listener.principal, ""), broker.topics)
        session = self._session = Session(
            settings=settings,
            clock=broker.clock,
            metrics=metrics,
            intake=Intake(broker, settings, metrics, self._tasks, self._turns),
            publisher=publisher,
            live=live,
            host=host,
            reply_form=ReplyForm(settings.reply_form),
            access=own,
            subscribers=own,
        )
        self._inlets = [
            Inlet(router, self._turns, Routed(router, session, senders).take, session.intake.append),
            Inlet(pull, self._turns, Pushed(pull, session, senders).take, session.intake.append),
            Inlet(pub, self._turns, lambda: False, publisher.subscriptions.heed),
            Inlet(live_pub, self._turns, lambda: False, live.subscriptions.heed),
        ]
        for inlet in self._inlets:
            inlet.open()
        self._guards = [AcceptGuard(socket, metrics) for socket in self._sockets]
        for guard in self._guards:
            guard.open()
        heartbeat_address = f"tcp://{host}:{self.addresses['logjam_pub'][1]}"
        self._tasks.spawn(publisher.beat_forever(heartbeat_address, settings.heartbeat_interval_ms))
        self._tasks.spawn(live.tick_forever())
        for name, bound in self.addresses.items():
            broker.identity.addresses[name] = (host if bound[0] == "0.0.0.0" else bound[0], bound[1])
        log.info("door open", door="logjam", **{name: f"{h}:{p}" for name, (h, p) in self.addresses.items()})

    def _open_curve(self) -> "Senders | None":
        settings = self._listener.settings
        if settings.curve_key is None:
            return None
        assert settings.curve_clients is not None
        self._curve = Curve(self._context, settings.curve_key, settings.curve_clients)
        return Senders(self._curve, self._broker)

    async def stop(self) -> None:
        for inlet in self._inlets:
            inlet.close()
        for guard in self._guards:
            guard.close()
        if self._session is not None:
            self._session.intake.stop()
        await self._tasks.stop()
        self._turns.close()
        if self._curve is not None:
            self._curve.close()
        # Also those of a start that failed half-way: the context waits for every one of them.
        for socket in self._sockets:
            socket.close(linger=LINGER_MS)
        # Waits for what is still being sent, but never for long.
        await asyncio.to_thread(self._context.term)

    def _bind(self, kind: int, text: str, name: str) -> "zmq.Socket[bytes]":
        host, port = parse_address(text)
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        self._sockets.append(socket)
        socket.setsockopt(zmq.RCVHWM, self._settings.receive_high_water_mark)
        replies_max = REPLIES_MAX if kind == zmq.ROUTER else self._settings.send_high_water_mark
        socket.setsockopt(zmq.SNDHWM, min(replies_max, self._settings.send_high_water_mark))
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_MAXRT, UNREAD_MS_MAX)
        if self._curve is not None:
            self._curve.protect(socket)
        if ":" in host:
            socket.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        try:
            socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            key = f"listen.{name.replace('_', '.')}"
            raise cannot_listen(key, text, number=error.errno, words=error.strerror) from error
        bound = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self.addresses[name] = parse_address(bound.decode().rstrip("\0").removeprefix("tcp://"))
        return socket


async def _own_name() -> str:
    """This machine's full name, unless finding it out would hold up the start."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(network.getfqdn), NAME_LOOKUP_S)
    except TimeoutError:
        return network.gethostname()


class Inlet:
    """One socket on the event loop. `take` handles one message and says if there was one; `finish` ends each drain."""

    def __init__(
        self, socket: "zmq.Socket[bytes]", turns: Turns, take: Callable[[], bool], finish: Callable[[], None]
    ) -> None:
        self.socket = socket
        self._turns = turns
        self._take = take
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._is_open = False

    def open(self) -> None:
        self._is_open = True
        self._loop.add_reader(self._descriptor, self._drain)
        # The descriptor may have spoken before anybody listened.
        self._again()

    def close(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._descriptor)

    @property
    def _descriptor(self) -> int:
        return int(self.socket.getsockopt(zmq.FD))

    def _again(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._turns.next().then(lambda _: self._drain())

    def _drain(self) -> None:
        self._is_due = False
        if not self._is_open:
            return
        take = self._take
        try:
            while take():
                if self._turns.is_over():
                    break
        except Exception:
            log.exception("message failed unexpectedly", door="logjam")
        self._finish()
        # Asking for the events re-arms the descriptor: whatever has come since will make it speak again.
        if int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._again()


class Senders:
    """What each agent may do, by the key that its connection has proved to have."""

    def __init__(self, curve: Curve, broker: Broker) -> None:
        self._curve = curve
        self._broker = broker
        self._rights: dict[Principal, Rights] = {}

    def rights_of(self, frame: "zmq.Frame") -> Rights | None:
        principal = self._curve.principal_of(str(frame.get("User-Id")))
        if principal is None:
            return None
        if principal not in self._rights:
            # As many as the file names, which is bounded.
            self._rights[principal] = Rights(self._broker.access.guard(principal, ""), self._broker.topics)
        return self._rights[principal]


class Arriving:
    """Messages of one socket, frame by frame: who sends millions of frames as one message gets turns like everybody else."""

    def __init__(self, socket: "zmq.Socket[bytes]", session: Session, senders: "Senders | None" = None) -> None:
        """Without `senders` nobody is asked who they are."""
        self._socket = socket
        self._session = session
        self._senders = senders
        self._sender: Rights | None = None
        """Of whoever has sent the message that is arriving; None for somebody who is nobody here."""
        self._frames: list[bytes] = []
        self._excess = 0
        """Frames beyond what any message has, which nobody keeps."""

    def take(self) -> bool:
        """A whole message, or a part of one that has very many frames; false when there is nothing."""
        try:
            for _ in range(FRAMES_AT_ONCE):
                # `recv_multipart` asks the socket after every frame and takes half as long again.
                frame = self._socket.recv(zmq.DONTWAIT, copy=False)
                if self._senders is not None and not self._frames:
                    self._sender = self._senders.rights_of(frame)
                if len(self._frames) < FRAMES_MAX:
                    self._frames.append(frame.bytes)
                else:
                    self._excess += 1
                if not frame.more:
                    self._finish()
                    return True
        except zmq.Again:
            return False
        return True

    def _finish(self) -> None:
        frames, self._frames = self._frames, []
        excess, self._excess = self._excess, 0
        self._session.metrics.received_total += 1
        if excess:
            self._session.metrics.malformed_total += 1
        elif self._senders is not None and self._sender is None:
            self._session.metrics.denied_total += 1
        else:
            if self._sender is not None:
                self._session.access = self._sender
            self.handle(frames)

    def handle(self, frames: list[bytes]) -> None:
        raise NotImplementedError


class Routed(Arriving):
    def handle(self, frames: list[bytes]) -> None:
        reply = route_routed(frames[1:], self._session)
        if reply is not None:
            # A client that has gone, or never reads, loses its reply; it does not hold up the others.
            self._socket.send_multipart([frames[0], *reply], zmq.DONTWAIT)


class Pushed(Arriving):
    def handle(self, frames: list[bytes]) -> None:
        route_pushed(frames, self._session)
