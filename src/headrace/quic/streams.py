"""One stream of a QUIC connection, as an asyncio transport: a protocol made for TCP runs on it unchanged.

- What a paused protocol does not take is held here; its connection counts how much that is in all (`peers.py`).
- What the protocol writes waits here, uncopied, and is handed to QUIC a piece at a time as that has room.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.quic.peers import Peer

NO_ERROR: Final = 0
GIVEN_UP: Final = 1
"""The code of streams that end in the middle, as a TCP connection does that is reset."""
_UNSENT_HIGH: Final = 64 * 1024

Protocol = asyncio.Protocol | asyncio.BufferedProtocol
Buffer = bytes | bytearray | memoryview


class StreamTransport(asyncio.Transport):
    def __init__(self, peer: "Peer", number: int) -> None:
        super().__init__()
        self._peer = peer
        self.number = number
        self._protocol: Protocol | None = None
        self._held: deque[bytes] = deque()
        self.held_bytes = 0
        self._is_end_held = False
        self._is_paused = False
        self._is_gated = False
        self._is_feeding = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high = _UNSENT_HIGH
        self._low = _UNSENT_HIGH // 4
        self._is_writing_paused = False
        self._is_closing = False
        self._is_over = False
        self._is_end_received = False
        self._is_end_sent = False

    # -- for the protocol -----------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    @property
    def protocol(self) -> Protocol | None:
        """None before there is one, and when the stream is over."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # Any: as asyncio has it
        match name:
            case "peername":
                return self._peer.address
            case "sockname":
                return self._peer.reached
            case _:
                return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _UNSENT_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._feed_soon()

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for data in list_of_data:
            if len(data):
                self._unsent.append(memoryview(data))
                self._unsent_bytes += len(data)
        self._peer.wants_to_send(self)
        if self._unsent_bytes > self._high and not self._is_writing_paused and self._protocol is not None:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing more is taken in; what was written is still sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._let_go_of_held()
        self._peer.stop_receiving(self)
        self._peer.wants_to_send(self)

    def abort(self) -> None:
        if not self._is_over:
            self._peer.reset(self)
            self.lost(None)

    # -- for the connection ---------------------------------------------------------------------------------------

    @property
    def is_end_received(self) -> bool:
        return self._is_end_received

    def gate(self) -> None:
        """Hold everything back until `open_gate`."""
        self._is_gated = True

    def open_gate(self) -> None:
        self._is_gated = False
        self._feed_soon()

    def receive(self, data: bytes, *, is_end: bool) -> None:
        self._is_end_received = self._is_end_received or is_end
        if self._is_closing:
            return
        self._is_end_held = self._is_end_held or is_end
        if data:
            self._held.append(data)
            self.held_bytes += len(data)
            self._peer.held_bytes += len(data)
        self._feed()

    def _feed_soon(self) -> None:
        if self._held or self._is_end_held:
            # Not at once: a protocol resumes in the middle of its own work.
            asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._held and self._takes:
                self._hand_over(self._held.popleft())
        finally:
            self._is_feeding = False
        if not self._held and self._is_end_held and self._takes:
            self._is_end_held = False
            if self._protocol is not None and not self._protocol.eof_received():
                self.close()
        self._peer.look_at_held()

    @property
    def _takes(self) -> bool:
        return not (self._is_paused or self._is_gated or self._is_closing)

    def _hand_over(self, data: bytes) -> None:
        protocol = self._protocol
        taken = len(data)
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while len(view):
                if not self._takes:
                    self._held.appendleft(bytes(view))
                    taken -= len(view)
                    break
                buffer = memoryview(protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                view = view[size:]
                protocol.buffer_updated(size)
        elif protocol is not None:
            protocol.data_received(data)
        if not self._is_closing:
            self.held_bytes -= taken
            self._peer.held_bytes -= taken

    def _let_go_of_held(self) -> None:
        self._held.clear()
        self._is_end_held = False
        self._peer.held_bytes -= self.held_bytes
        self.held_bytes = 0

    def take(self, size_max: int) -> memoryview | None:
        """The next bytes to send, no more than `size_max`; None when nothing waits."""
        if not self._unsent:
            return None
        first = self._unsent[0]
        if len(first) > size_max:
            self._unsent[0] = first[size_max:]
            first = first[:size_max]
        else:
            self._unsent.popleft()
        self._unsent_bytes -= len(first)
        return first

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def wants_end(self) -> bool:
        return self._is_closing and not self._unsent and not self._is_end_sent

    def end_sent(self) -> None:
        self._is_end_sent = True
        self.lost(None)

    def sent(self) -> None:
        """QUIC has taken some of it."""
        if self._is_writing_paused and self._unsent_bytes <= self._low:
            self._is_writing_paused = False
            if self._protocol is not None and not self._is_over:
                self._protocol.resume_writing()

    def lost(self, reason: Exception | None) -> None:
        """The stream is over: the protocol is told, once."""
        if self._is_over:
            return
        self._is_over = self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._let_go_of_held()
        self._peer.forget(self)
        if self._protocol is not None:
            # Not from within one of its own calls.
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, reason)
            self._protocol = None
