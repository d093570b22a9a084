"""What every framed TCP door shares: bytes in, whole frames out, answers in the order of the requests.

- Bytes land in one buffer that all connections of a door share: a loop fills and hands over one at a time. What is left of
  an unfinished frame moves to a buffer of the connection's own, so ten thousand idle connections cost nothing but their
  sockets. That one is as large as the frame, after its length has been checked, and goes back to the pool.
- Frames are handed on as views of that buffer: they live until `take_frame` returns.
- Each request reserves a `Slot`; slots are filled in any order and written in theirs.
- Reading pauses while too much is unanswered or unsent. A frame that cannot be taken now (`Blocked`) stays where it is
  and is offered again; nothing behind it is looked at.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

import structlog

from headrace.broker.deferred import Deferred
from headrace.broker.topics import Topic
from headrace.doors.buffer_pool import SMALL_BUFFER, Memory
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.file_sending import FileSending, has_files, in_memory
from headrace.doors.slots import SLOTS_MAX, Slot
from headrace.errors import MalformedRequest
from headrace.records.batch import Buffer, Piece

_UNSENT_HIGH: Final = 4 * 1024 * 1024
_GROWTH_MAX: Final = 8
"""How many times what has arrived a buffer may hold: a frame of a megabyte is moved once on its way, or twice."""


def _send_buffer() -> int:
    """Room for an answer of a megabyte to leave in one call, a fifth cheaper than in parts; 0 where the system does not
    allow that much: what the kernel grows by itself is more than what it would let us have."""
    wanted = 2 * 1024 * 1024
    try:
        allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
    except (OSError, ValueError):
        return 0
    return wanted if allowed >= wanted else 0


_SEND_BUFFER: Final = _send_buffer()

_NOTHING: Final = memoryview(b"")

log = structlog.get_logger(__name__)


class Blocked:
    """A frame cannot be taken now; offer it again, with `resumed` set, when `until` is resolved."""

    __slots__ = ("until",)

    def __init__(self, until: "Deferred[str]") -> None:
        self.until = until


class FramedConnection(asyncio.BufferedProtocol):
    """One client. A door subclasses it with the frame's layout and what to do with one."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        # for `_sending.c` and `_produce.c`:
        "_file_number",
        "_is_answering",
        "_is_closing",
        "_open_topics",
        "_peers",
        "_slots",
        "_transport",
    )

    HEADER_SIZE: int = 4

    def __init__(self, peers: ConnectionSet) -> None:
        self._peers = peers
        self._take_landed: Callable[[memoryview, int, FramedConnection], int] | None = None
        """Serves the frames at the start of what has landed that can be served at once, and gives where the rest begins."""
        self._transport: asyncio.Transport | None = None
        self._file_number = -1
        """Of the socket, where what is written to it reaches the client as it is."""
        self._file_sending: FileSending | None = None
        """An answer that the socket has not taken all of yet; the answers behind it wait in their slots."""
        self._buffer: Memory | None = None
        self._view = _NOTHING
        self._start = 0
        self._filled = 0
        self._needed = 0
        self._slots: deque[Slot] = deque()
        self._is_blocked = False
        self._is_paused = False
        self._is_closing = False
        self._open_topics: Mapping[str | bytes, Topic] = {}
        """Topics this client may write to without being asked again: all that a fast path knows of rights."""
        self._is_writing_paused = False
        self._is_answering = False
        self._is_heard = True
        """Something has come since somebody last looked."""
        self._resumed: str | None = None

    # -- for the door --------------------------------------------------------------------------------------------

    def frame_size(self, view: memoryview, at: int) -> int:
        """Size of the frame's body, from the header at `at`. Raises `MalformedRequest` when it is out of bounds."""
        raise NotImplementedError

    def take_frame(self, frame: memoryview, resumed: str | None) -> Blocked | None:
        """Serve one frame (header included). `resumed` is why it is offered again after `Blocked`."""
        raise NotImplementedError

    def refuse(self, error: MalformedRequest) -> None:
        """The bytes make no sense: answer in the door's own language if it has words for it, then close.

        What was asked before them is still answered.
        """
        self.close_after(self.reserve())

    def closed(self) -> None:
        """The connection is gone."""

    def _landing_failed(self) -> None:
        """What nobody foresaw, in `_take_landed`: answer what can be answered, then close."""
        log.exception("request failed", door=self._peers.name, peer=self.peer)
        self.finish()

    def reserve(self) -> Slot:
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def withdraw(self, slot: Slot) -> None:
        """The frame that `slot` was reserved for is not taken after all."""
        assert self._slots[-1] is slot
        self._slots.pop()

    def close(self) -> None:
        """End the connection once what is answered has been sent."""
        self._is_closing = True
        if self._file_sending is not None:
            self._drop_slots()
        elif self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Take no more requests; end the connection when those under way are answered."""
        self._is_closing = True
        self.flush()

    @property
    def owes_answer(self) -> bool:
        """Whether somebody waits to hear that what he sent is kept; a parked read has nothing to lose."""
        return any(slot.chunks is None and slot.on_expiry is not None for slot in self._slots)

    @property
    def unfinished_bytes(self) -> int:
        """Received, of a frame that is not whole yet or that waits."""
        return self._filled - self._start if self._buffer is not None else 0

    @property
    def unsent_bytes(self) -> int:
        """Answers in memory that the socket has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close_after(self, slot: Slot) -> None:
        self._is_closing = True
        slot.chunks = ()
        self.flush()

    @property
    def peer(self) -> str:
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if name else "unknown"

    # -- from the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's; they only behave like them.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_UNSENT_HIGH)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if _SEND_BUFFER:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            if transport.get_extra_info("sslcontext") is None:
                self._file_number = raw.fileno()
        if not self._peers.welcome(self, raw.fileno() if raw is not None else 0):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.connections.pop(self, None)
        self._transport = None
        self._file_number = -1
        self._is_closing = True
        if self._file_sending is not None:
            self._file_sending.close()
            self._file_sending = None
        self._release()
        self._drop_slots()
        self.closed()

    def _drop_slots(self) -> None:
        """Nobody will read these answers."""
        lost = [slot.on_lost for slot in self._slots if slot.chunks is None and slot.on_lost is not None]
        self._slots.clear()
        for tell in lost:
            tell()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            return self._peers.landing
        if self._filled == len(self._view) or (self._start and self._start + self._needed > len(self._view)):
            self._make_space()
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._is_heard = True
        if self._buffer is not None:
            self._filled += nbytes
        else:
            landing = self._peers.landing
            if self._take_landed is not None and not self._is_closing and not self._is_writing_paused:
                try:
                    self._start = self._take_landed(landing, nbytes, self)
                except Exception:
                    self._landing_failed()
                    return
                if self._start == nbytes and len(self._slots) < SLOTS_MAX:
                    self._start = 0
                    return
            self._view = landing
            self._filled = nbytes
        if not self._is_blocked:
            self._process()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._is_blocked:
            self._adjust_reading()
        else:
            # Frames that came while the client did not read are still in the buffer.
            self._process_pending()

    # -- receiving -----------------------------------------------------------------------------------------------

    def _process(self) -> None:
        view, start, filled = self._view, self._start, self._filled
        header_size = self.HEADER_SIZE
        try:
            while filled - start >= header_size:
                if self._is_closing:
                    self._release()
                    return
                end = start + header_size + self.frame_size(view, start)
                if end > filled:
                    self._needed = end - start
                    break
                if len(self._slots) >= SLOTS_MAX or self._is_writing_paused:
                    break
                resumed, self._resumed = self._resumed, None
                blocked = self.take_frame(view[start:end], resumed)
                if blocked is not None:
                    self._keep(start)
                    self._block(blocked)
                    return
                start = end
                self._needed = 0
        except MalformedRequest as error:
            self._peers.refused_frames_total += 1
            log.warning("frame refused", door=self._peers.name, peer=self.peer, reason=str(error))
            self._is_closing = True
            self.refuse(error)
            self._release()
            return
        if start == filled:
            self._release()
        else:
            self._keep(start)
        if self._slots or self._is_paused:
            self._adjust_reading()

    def _block(self, blocked: Blocked) -> None:
        self._is_blocked = True
        self._adjust_reading()
        blocked.until.then(self._unblock)

    def _unblock(self, done: "Deferred[str]") -> None:
        self._is_blocked = False
        if self._transport is None or self._is_closing:
            return
        self._resumed = done.result()
        self._process()
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read only while there is room for what would come."""
        if self._transport is None or self._transport.is_closing():
            return
        should_pause = self._is_blocked or self._is_writing_paused or len(self._slots) >= SLOTS_MAX
        if should_pause and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        elif not should_pause and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _attach(self, buffer: Memory) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = self._filled = 0

    def _keep(self, start: int) -> None:
        """What begins at `start` is not done with: it may not stay where the next connection's bytes land."""
        self._start = start
        if self._buffer is None:
            self._move(self._size_wanted(SMALL_BUFFER))

    def _make_space(self) -> None:
        """Move what is pending to the front, of a larger buffer where the frame needs one."""
        size = self._size_wanted(len(self._view))
        if size > len(self._view):
            self._move(size)
            return
        pending = self._filled - self._start
        self._view[:pending] = bytes(self._view[self._start : self._filled])
        self._start, self._filled = 0, pending

    def _size_wanted(self, size_min: int) -> int:
        """A length is a promise: memory follows what has really come, or two hundred liars would take gigabytes."""
        pending = self._filled - self._start
        return max(min(max(self._needed, pending + 1), pending * _GROWTH_MAX), size_min)

    def _move(self, size: int) -> None:
        old, pending = self._buffer, self._view[self._start : self._filled]
        self._attach(self._peers.pool.take(size))
        self._filled = len(pending)
        self._view[: self._filled] = pending
        pending.release()
        if old is not None:
            self._peers.pool.give_back(old)

    def _release(self) -> None:
        if self._buffer is not None:
            self._peers.pool.give_back(self._buffer)
            self._buffer = None
        self._view = _NOTHING
        self._start = self._filled = self._needed = 0

    # -- answering -----------------------------------------------------------------------------------------------

    def answered(self, slot: Slot) -> None:
        if not self._is_answering and self._slots and self._slots[0] is slot:
            self._is_answering = True
            self._peers.flush_soon(self)

    def flush(self) -> None:
        """Write every answer whose turn has come."""
        self._is_answering = False
        if self._file_sending is not None:
            return
        slots, transport = self._slots, self._transport
        was_full = len(slots) >= SLOTS_MAX
        ready: list[Piece] = []
        while slots and (chunks := slots[0].chunks) is not None:
            slots.popleft()
            ready += chunks
        if ready and transport is not None:
            self._write(transport, ready)
        if self._file_sending is not None:
            return
        if self._is_closing and not slots and transport is not None:
            transport.close()
        elif was_full and not self._is_blocked:
            self._process_pending()

    def _write(self, transport: asyncio.Transport, ready: list[Piece]) -> None:
        if has_files(ready):
            if self._file_number >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
                self._send_files(ready)
                return
            try:
                ready[:] = in_memory(ready)
            except OSError as error:
                self._cut_off(str(error))
                return
        # One call, one writev: a write for each answer was a third of the cost of small requests.
        buffers = cast(list[Buffer], ready)
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def _send_files(self, ready: list[Piece]) -> None:
        """Nothing else is sent, and no more requests are read, until the socket has taken all of it."""
        self._file_sending = FileSending(self._file_number, ready, self._files_sent)
        self._file_number = -1
        self._file_sending.run()
        if self._file_sending is not None:
            self.pause_writing()

    def _files_sent(self, reason: str | None) -> None:
        self._file_sending = None
        raw = self._transport.get_extra_info("socket") if self._transport is not None else None
        if raw is None:
            return
        if reason is not None:
            self._cut_off(reason)
            return
        self._file_number = raw.fileno()
        if self._is_writing_paused:
            self.resume_writing()
            self.flush()

    def _cut_off(self, reason: str) -> None:
        """Half an answer is worse than none: a client that is still there comes back, and hears what is wrong."""
        log.info("an answer from a file was not sent", door=self._peers.name, peer=self.peer, reason=reason)
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _process_pending(self) -> None:
        if self._buffer is not None:
            self._process()
        self._adjust_reading()

    def expire(self, now_ms: int) -> None:
        """Give up on answers that are overdue; only the first few can be, since later ones wait longer."""
        for slot in list(self._slots):
            if slot.on_expiry is None or slot.chunks is not None:
                continue
            if slot.expires_ms > now_ms:
                return
            slot.on_expiry()
