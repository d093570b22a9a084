"""The live connections of one door: the memory they share, how many there may be, and answers that leave together."""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from headrace.doors.buffer_pool import BufferPool
from headrace.doors.sending import send_ready
from headrace.doors.slots import SLOTS_MAX
from headrace.open_files import files_for_connections

if TYPE_CHECKING:
    from headrace.doors.connection import FramedConnection

LANDING_SIZE: Final = 256 * 1024
"""Of the one buffer where bytes of all connections land: a batch of 128 KiB mostly lands whole, and is not moved."""
UNSENT_BYTES_MAX: Final = 512 * 1024 * 1024
"""Of large answers to all connections of a door. Near it answers shrink, down to the next."""
ANSWER_BYTES_MIN: Final = 1024 * 1024
_ANSWERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Answered before all connections are asked again what they still hold: those that read fast have long read it, and sending so
much takes longer than asking thousands."""

log = structlog.get_logger(__name__)


class ConnectionSet:
    """The live connections of one door, and what they have in common."""

    __slots__ = ("__dict__", "__weakref__", "_answering")  # for `_produce.c`

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool = BufferPool()
        self.landing = memoryview(bytearray(LANDING_SIZE))
        self.connections: dict[FramedConnection, None] = {}
        """In the order of their coming, in which they are gone through."""
        self.accepted_total = 0
        self.turned_away_total = 0
        """Connections closed at once because the process is nearly out of files."""
        self._files_end = files_for_connections()
        self._is_turning_away = False
        self.refused_frames_total = 0
        """Frames that were malformed, oversized or otherwise ended their connection."""
        self._answering: list[FramedConnection] = []
        self.unsent_bytes = 0
        """Of large answers: what waited for its clients when they were last asked, and all that was answered since."""
        self._unsent_when_asked = 0

    def welcome(self, connection: "FramedConnection", file_number: int) -> bool:
        """Whether there are files enough for one more; the lowest free number is always taken, so the number tells."""
        if file_number < self._files_end:
            self.connections[connection] = None
            self.accepted_total += 1
            self._is_turning_away = False
            return True
        self.turned_away_total += 1
        if not self._is_turning_away:
            self._is_turning_away = True
            log.error("nearly out of files: new connections are closed", door=self.name, connections=self._files_end)
        return False

    def flush_soon(self, connection: "FramedConnection") -> None:
        """Write at the end of this turn of the loop: answers that one flush of the log released leave together."""
        if not self._answering:
            asyncio.get_running_loop().call_soon(self.flush)
        self._answering.append(connection)

    def flush(self) -> None:
        """Write what is answered by now, without waiting for the end of the turn."""
        if self._answering:
            answering, self._answering = self._answering, []
            send_ready(answering, SLOTS_MAX)

    def expire(self, now_ms: int) -> None:
        for connection in list(self.connections):
            connection.expire(now_ms)
        self._ask_for_unsent()

    def room_for_answer(self) -> int:
        """How large the next answer may be: clients that read slowly have a bound between them, not one each."""
        if self.unsent_bytes - self._unsent_when_asked >= _ANSWERED_BYTES_MAX:
            self._ask_for_unsent()
        return max((UNSENT_BYTES_MAX - self.unsent_bytes) // 4, ANSWER_BYTES_MIN)

    def _ask_for_unsent(self) -> None:
        self.unsent_bytes = self._unsent_when_asked = sum(each.unsent_bytes for each in self.connections)
