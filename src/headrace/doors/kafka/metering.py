"""What one connection uses, measured against the quotas that hold for its client; only connections that may have one are measured.

Whoever is over a quota is answered at once, told so (`throttle_time_ms`), and then not read from until the time is over: their
requests wait in their own socket, and nobody else waits for them (KIP-219).
"""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.access.quotas import Limit, Quotas
from headrace.broker.access.rates import SAMPLE_MS
from headrace.broker.deferred import Deferred
from headrace.clock import Clock
from headrace.doors.slots import Slot
from headrace.records.batch import Piece
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.throttle import set_throttle

if TYPE_CHECKING:
    from headrace.doors.connection import FramedConnection

UNMUTED: Final = "unmuted"
"""Why a frame is offered again that came too early."""
_NANOSECONDS_PER_PERCENT: Final = 10_000_000
_PLAIN: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA})


class Metering:
    """Of one connection, for as long as a quota may concern it."""

    __slots__ = ("_clock", "_muted_until_ms", "_quotas", "_unmuted", "_user")

    def __init__(self, quotas: Quotas, user: str, clock: Clock) -> None:
        self._quotas = quotas
        self._user = user
        self._clock = clock
        self._muted_until_ms = 0
        self._unmuted: Deferred[str] | None = None

    def muted(self) -> Deferred[str] | None:
        """Resolved when requests are taken again; None if they are."""
        if self._unmuted is not None:
            return self._unmuted
        wait_ms = self._muted_until_ms - self._clock.monotonic_ms()
        if wait_ms <= 0:
            return None
        self._unmuted = Deferred()
        asyncio.get_running_loop().call_later(wait_ms / 1_000, self._unmute)
        return self._unmuted

    def end(self) -> None:
        """No quota concerns it any more: nobody need wait."""
        self._unmute()

    def _unmute(self) -> None:
        unmuted, self._unmuted = self._unmuted, None
        self._muted_until_ms = 0
        if unmuted is not None:
            unmuted.resolve(UNMUTED)

    def slot(self, connection: "FramedConnection", key: int, version: int, client: str) -> "MeteredSlot":
        return MeteredSlot(connection, self, key, version, client)

    def received(self, slot: "MeteredSlot", size: int) -> None:
        """A request has come whole."""
        if slot.key == ApiKey.PRODUCE:
            self._throttle(slot, Limit.PRODUCE, size)

    def worked(self, slot: "MeteredSlot", nanoseconds: int) -> None:
        # As Kafka does: never longer than a sample, or a slow request would be punished for minutes.
        self._throttle(slot, Limit.REQUESTS, nanoseconds / _NANOSECONDS_PER_PERCENT, most_ms=SAMPLE_MS)

    def answered(self, slot: "MeteredSlot", size: int) -> None:
        if slot.key == ApiKey.FETCH:
            self._throttle(slot, Limit.FETCH, size)

    def window_bytes(self, client: str) -> int | None:
        return self._quotas.window_bytes(self._user, client)

    def _throttle(self, slot: "MeteredSlot", limit: Limit, amount: float, most_ms: int | None = None) -> None:
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._quotas.record(limit, self._user, slot.client, amount, now_ms)
        if most_ms is not None:
            throttle_ms = min(throttle_ms, most_ms)
        if throttle_ms:
            slot.throttle_ms = max(slot.throttle_ms, throttle_ms)
            self._muted_until_ms = max(self._muted_until_ms, now_ms + throttle_ms)


class MeteredSlot(Slot):
    """The place of an answer that says how long its client is not listened to."""

    __slots__ = ("_metering", "_started_ns", "client", "key", "throttle_ms", "version")

    def __init__(self, connection: "FramedConnection", metering: Metering, key: int, version: int, client: str) -> None:
        super().__init__(connection)
        self._metering = metering
        self.key = key
        self.version = version
        self.client = client
        self.throttle_ms = 0
        self._started_ns: int | None = time.perf_counter_ns()

    def fill(self, chunks: Sequence[Piece]) -> None:
        if self.chunks is None:
            self.handled()
            self._metering.answered(self, sum(map(len, chunks)))
            if self.throttle_ms and self.key in _PLAIN:
                chunks = set_throttle(chunks, self.key, self.version, self.throttle_ms)
        super().fill(chunks)

    def handled(self) -> None:
        """What the loop does for this request is done, but for waiting and encoding."""
        if self._started_ns is not None:
            started_ns, self._started_ns = self._started_ns, None
            self._metering.worked(self, time.perf_counter_ns() - started_ns)

    def tell(self, answer: Message) -> None:
        """The throttle time in an answer that is encoded next."""
        self.handled()
        if self.throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = self.throttle_ms
