"""A broker's place in its cluster: registered with the active controller, heard by all of them, told when it is fenced.

A controller that does not answer, or not in time, means nothing to a broker: its transactions say whether it may still write. What a
controller says is believed only where it cannot be outdated: broker epochs only rise, so "fenced" is final whoever says it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from headrace.clock import Clock, boot_ms
from headrace.control import membership_pb2 as pb
from headrace.control.cluster import Registered
from headrace.control.controller.driver import Entered
from headrace.control.controller.machine import DEFAULT_TIMING, State, Timing
from headrace.control.controller.service import SERVICE, Numbering
from headrace.control.etcd.connection import open_channel, refusal_of, serialize
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.plans import Fence
from headrace.control.values_pb2 import BrokerRegistration
from headrace.errors import Concurrent, Conflict, Invalid, NotReady, OutcomeUnknown, StaleEpoch, Unavailable
from headrace.ids import BrokerEpoch, BrokerId
from headrace.telemetry.logging import get_logger

CALL_S: Final = 2.0
COMMIT_S: Final = 5.0
"""How long a commit waits for a controller to be active: longer than another needs to become it."""
_AGAIN_S: Final = 0.1
_MOVING_S: Final = 0.05
"""Between two questions whether others lead everything by now."""

log = get_logger(__name__)

Reply = TypeVar("Reply", bound=Any)  # A generated message with a `standing`; the generator gives them no common type.


class Membership:
    """One incarnation after another of one broker. Create it on the loop that will use it; `close` it there."""

    def __init__(
        self,
        controllers: EtcdSettings,
        broker_id: str,
        *,
        clock: Clock,
        cluster_id: str = "",
        timing: Timing = DEFAULT_TIMING,
        now_ms: Callable[[], int] = boot_ms,
    ) -> None:
        """`now_ms` goes on while the machine sleeps."""
        self._now_ms = now_ms
        self._answered_ms = now_ms()
        self._names = controllers.endpoints
        self._channels = [open_channel(endpoint, controllers) for endpoint in controllers.endpoints]
        self._current = 0
        self._broker_id = broker_id
        self._clock = clock
        self._timing = timing
        self._entered: Entered | None = None
        self._addresses: BrokerRegistration | None = None
        self._beats: list[asyncio.Task[None]] = []
        self._wakes = [asyncio.Event() for _ in self._channels]
        self._on_fenced: Callable[[], None] = lambda: None
        self._active = asyncio.Event()
        self.cluster_id = cluster_id
        """Empty until a controller has said it; from then on no other is taken."""

    async def register(
        self, registration: BrokerRegistration, *, patience_s: float, on_fenced: Callable[[], None]
    ) -> Entered:
        """A new incarnation, heard from now on; `on_fenced` is called once, when it is fenced.

        Raises `Unavailable` when no active controller was found in time, `Conflict` when another process has this broker's name,
        `Invalid` when the controllers are of another cluster.
        """
        self._rest()
        request = pb.RegisterRequest(cluster_id=self.cluster_id, broker_id=self._broker_id, registration=registration)
        sent_ms = self._now_ms()
        reply = await self._ask_active("Register", request, pb.RegisterReply, patience_s=patience_s)
        self._answered_ms = sent_ms
        epoch = BrokerEpoch(reply.broker_epoch)
        self._entered = Entered(
            registered=Registered(numeric_id=BrokerId(reply.numeric_id), broker_epoch=epoch),
            fence=Fence(self._broker_id, epoch, reply.revision),
        )
        self._on_fenced = on_fenced
        self._addresses = None
        self._active.clear()
        self._beats = [asyncio.create_task(self._beat_always(member)) for member in range(len(self._channels))]
        return self._entered

    @property
    def silent_ms(self) -> int:
        """Since this broker sent what the active controller has answered: it was heard since then, if not later."""
        return self._now_ms() - self._answered_ms

    async def activate(self, addresses: BrokerRegistration, *, patience_s: float) -> None:
        """The doors are open, at these addresses. Returns when the cluster knows it, and may give this broker partitions."""
        self._addresses = addresses
        for wake in self._wakes:
            wake.set()
        try:
            async with asyncio.timeout(patience_s):
                await self._active.wait()
        except TimeoutError as error:
            raise Unavailable(f"no controller has made this broker active within {patience_s} s") from error

    async def leave(self, *, is_gone: bool, patience_s: float) -> bool:
        """Before stopping, others lead what they can when this returns; after it, nobody waits for the session's end.

        False when no controller has heard it, or not all could be moved in time.
        """
        if self._entered is None:
            return True
        if is_gone:
            self._rest()
        request = pb.LeaveRequest(
            cluster_id=self.cluster_id,
            broker_id=self._broker_id,
            broker_epoch=self._entered.registered.broker_epoch,
            is_gone=is_gone,
        )
        deadline_ms = self._clock.monotonic_ms() + round(patience_s * 1000)
        try:
            while True:
                rest_s = (deadline_ms - self._clock.monotonic_ms()) / 1000
                reply = await self._ask_active("Leave", request, pb.LeaveReply, patience_s=rest_s)
                if not reply.partitions_left:
                    return True
                await asyncio.sleep(_MOVING_S)
        except (Unavailable, Invalid) as error:
            log.warning("no controller has heard that this broker leaves; they will notice", reason=str(error))
            return False

    async def dismiss(self, epoch: int, *, patience_s: float) -> None:
        """For a broker that cannot say it itself: it is gone, and does not come back under this epoch."""
        request = pb.LeaveRequest(
            cluster_id=self.cluster_id, broker_id=self._broker_id, broker_epoch=epoch, is_gone=True
        )
        await self._ask_active("Leave", request, pb.LeaveReply, patience_s=patience_s)

    async def commit_object(self, commit: bytes) -> Numbering:
        """Under the next number, by the active controller. Raises as `CommitObject` says, and `Unavailable` when none is active in time.

        It may have been sent twice: who is refused looks in the metastore whether the first one took effect.
        """
        request = pb.CommitObjectRequest(cluster_id=self.cluster_id, commit=commit)
        reply = await self._ask_active("CommitObject", request, pb.CommitObjectReply, patience_s=COMMIT_S)
        match reply.outcome:
            case pb.COMMIT_DONE:
                return Numbering(reply.number, reply.revision)
            case pb.COMMIT_STALE:
                raise StaleEpoch(reply.reason)
            case pb.COMMIT_UNKNOWN:
                raise OutcomeUnknown(reply.reason)
            case _:
                raise Concurrent(reply.reason)

    async def adopt(self, owner: str, *, ring_id: bytes, wal_path: str, patience_s: float) -> int:
        """For an operator: have this broker read the WAL of `owner`. Gives how many partitions are in it."""
        request = pb.AdoptRequest(
            cluster_id=self.cluster_id, owner=owner, taker=self._broker_id, ring_id=ring_id, wal_path=wal_path
        )
        return int((await self._ask_active("Adopt", request, pb.AdoptReply, patience_s=patience_s)).partitions)

    async def give_up_wal(self, *, patience_s: float) -> int:
        """For an operator: this broker's WAL is lost. Gives how many partitions go on without it."""
        request = pb.GiveUpWalRequest(cluster_id=self.cluster_id, broker_id=self._broker_id)
        return int((await self._ask_active("GiveUpWal", request, pb.GiveUpWalReply, patience_s=patience_s)).partitions)

    async def close(self) -> None:
        self._rest()
        for channel in self._channels:
            await channel.close()

    def _rest(self) -> None:
        for beat in self._beats:
            beat.cancel()
        self._beats = []

    async def _ask_active(self, method: str, request: Any, reply: type[Reply], *, patience_s: float) -> Reply:
        """Asks around for the active controller. Repeating is harmless: a second registration fences the first."""
        reason = "none is active"
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    member = self._current
                    try:
                        found = await self._call(member, method, request, reply)
                    except (Invalid, Conflict):
                        raise
                    except Unavailable as error:
                        reason = str(error)
                        self._current = (member + 1) % len(self._names)
                    else:
                        if found.standing.is_active:
                            return found
                        self._current = self._next_after(member, found.standing.active_endpoint)
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError as error:
            controllers = ", ".join(self._names)
            raise Unavailable(f"no active controller at {controllers} within {patience_s} s: {reason}") from error

    def _next_after(self, member: int, told: str) -> int:
        return self._names.index(told) if told in self._names else (member + 1) % len(self._names)

    async def _beat_always(self, member: int) -> None:
        assert self._entered is not None
        epoch = self._entered.registered.broker_epoch
        while True:
            begun_ms = self._clock.monotonic_ms()
            try:
                await self._beat(member, epoch)
            except Unavailable:
                pass  # Whether anybody hears this broker is the controllers' to say.
            except (Invalid, Conflict) as error:
                log.error("a controller does not know this broker's cluster", reason=str(error))
            rest_ms = self._timing.heartbeat_ms - (self._clock.monotonic_ms() - begun_ms)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest_ms, 0) / 1000):
                    await self._wakes[member].wait()
                    self._wakes[member].clear()

    async def _beat(self, member: int, epoch: int) -> None:
        request = pb.HeartbeatRequest(cluster_id=self.cluster_id, broker_id=self._broker_id, broker_epoch=epoch)
        if self._addresses is not None and not self._active.is_set():
            request.ready.CopyFrom(self._addresses)
        sent_ms = self._now_ms()
        reply = await self._call(member, "Heartbeat", request, pb.HeartbeatReply)
        if reply.standing.is_active and not reply.is_fenced:
            self._answered_ms = max(self._answered_ms, sent_ms)
        if reply.is_fenced:
            on_fenced, self._on_fenced = self._on_fenced, lambda: None
            on_fenced()
        elif State(reply.state) is State.ACTIVE and self._addresses is not None:
            self._active.set()

    async def _call(self, member: int, method: str, request: Any, reply: type[Reply]) -> Reply:
        call = self._channels[member].unary_unary(
            f"/{SERVICE}/{method}", request_serializer=serialize, response_deserializer=reply.FromString
        )
        try:
            found: Reply = await call(request, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            refused = refusal_of(error, f"controller at {self._names[member]}")
            if isinstance(refused, Unavailable | Invalid | Conflict):
                raise refused from error
            raise NotReady(str(refused)) from error
        if self.cluster_id and found.standing.cluster_id != self.cluster_id:
            raise Invalid(
                f"the controller at {self._names[member]} is of cluster {found.standing.cluster_id}, not of {self.cluster_id}"
            )
        self.cluster_id = found.standing.cluster_id
        return found
