"""A UDP socket that moves many datagrams in one system call, where the kernel can (GSO to send, GRO to receive).

Both are Linux's. Without them every datagram is a call of its own, and everything else is the same.
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final

Address = tuple[str, int]
Datagrams = list[bytes]

_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_SEGMENT_SIZE: Final = struct.Struct("=H")
_GRO_SIZE: Final = struct.Struct("=i")
_BUFFER_SIZE: Final = 65_535
_SEGMENTS_MAX: Final = 44
"""In one call: the kernel takes 64, and no more than 64 KiB in all."""
_KERNEL_BUFFER: Final = 4 * 1024 * 1024
"""What the kernel may hold for us between two turns of the loop: a congestion window of a fast sender."""
_RECEIVES_PER_TURN: Final = 4
_BYTES_PER_TURN: Final = 48 * 1024
"""Of one turn of the loop: no more calls, and none after so much. More would make every other door wait: opening 64 KiB of datagrams takes half a
millisecond."""
_BACKLOG_MAX: Final = 256
"""Datagrams that wait for a full socket. Those beyond are lost, as the network may lose any: QUIC sends them again."""
_NOT_SEGMENTED: Final = frozenset({errno.EIO, errno.EINVAL, errno.EOPNOTSUPP})


class DatagramSocket:
    """Hands over what came in one call as (datagrams, address), and sends lists of datagrams to one address."""

    def __init__(
        self,
        bound: socket.socket,
        received: Callable[[Datagrams, Address], None],
        refused: Callable[[], None] | None = None,
    ) -> None:
        """`refused` is told when nobody listens where a connected socket sends to."""
        self._socket = bound
        self._received = received
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._descriptor = bound.fileno()
        self._has_segments = _can_segment(bound)
        self._backlog: list[tuple[bytes, Address]] = []
        self._is_resting = False
        self.lost_total = 0
        """Datagrams that the socket would not take."""
        bound.setblocking(False)
        _enlarge(bound)
        with contextlib.suppress(OSError):  # One call for each datagram then.
            bound.setsockopt(socket.SOL_UDP, _UDP_GRO, 1)
        self._loop.add_reader(self._descriptor, self._read)

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            self._descriptor = -1
            self._socket.close()

    def rest(self, seconds: float) -> None:
        """Read nothing for a while; the kernel keeps what fits, and drops the rest."""
        if not self._is_resting and self._descriptor >= 0:
            self._is_resting = True
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._is_resting = False
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        taken = 0
        for _ in range(_RECEIVES_PER_TURN):
            try:
                data, ancillary, _, address = self._socket.recvmsg(_BUFFER_SIZE, 64)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionRefusedError:
                # What a datagram that was sent before has met with.
                if self._refused is not None:
                    self._refused()
                    return
                continue
            except OSError:
                continue
            self._received(_split(data, ancillary), address[:2])
            taken += len(data)
            if taken >= _BYTES_PER_TURN or self._is_resting or self._descriptor < 0:
                return

    def send(self, datagrams: Sequence[bytes], address: Address) -> None:
        if self._descriptor < 0:
            return
        at = 0
        while at < len(datagrams):
            run = _run_of_equal(datagrams, at) if self._has_segments else 1
            if not self._send_run(datagrams[at : at + run], address):
                self._keep(datagrams[at:], address)
                return
            at += run

    def _send_run(self, run: Sequence[bytes], address: Address) -> bool:
        """False when the socket is full."""
        try:
            if len(run) == 1:
                self._socket.sendto(run[0], address)
            else:
                sizes = [(socket.SOL_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(len(run[0])))]
                self._socket.sendmsg(run, sizes, 0, address)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if len(run) > 1 and error.errno in _NOT_SEGMENTED:
                self._has_segments = False
                return all(self._send_run((each,), address) for each in run)
            if isinstance(error, ConnectionRefusedError) and self._refused is not None:
                self._loop.call_soon(self._refused)
            # Unreachable, too large for the path, forbidden by a firewall: all the same to QUIC.
            self.lost_total += len(run)
        return True

    def _keep(self, datagrams: Sequence[bytes], address: Address) -> None:
        room = max(_BACKLOG_MAX - len(self._backlog), 0)
        self.lost_total += max(len(datagrams) - room, 0)
        if not self._backlog and room:
            self._loop.add_writer(self._descriptor, self._send_backlog)
        self._backlog += [(each, address) for each in datagrams[:room]]

    def _send_backlog(self) -> None:
        while self._backlog:
            datagram, address = self._backlog[0]
            if not self._send_run((datagram,), address):
                return
            self._backlog.pop(0)
        self._loop.remove_writer(self._descriptor)


def _split(data: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> Datagrams:
    for level, kind, value in ancillary:
        if level == socket.SOL_UDP and kind == _UDP_GRO and len(value) >= _GRO_SIZE.size:
            (size,) = _GRO_SIZE.unpack_from(value)
            if 0 < size < len(data):
                return [data[at : at + size] for at in range(0, len(data), size)]
    return [data]


def _run_of_equal(datagrams: Sequence[bytes], at: int) -> int:
    """How many from `at` on can leave in one call: all of one size, but for the last, which may be shorter."""
    size = len(datagrams[at])
    end = min(at + _SEGMENTS_MAX, len(datagrams))
    for index in range(at + 1, end):
        if len(datagrams[index]) != size:
            return index - at + (len(datagrams[index]) < size)
    return end - at


def _can_segment(bound: socket.socket) -> bool:
    try:
        bound.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def _enlarge(bound: socket.socket) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        bound.setsockopt(socket.SOL_SOCKET, option, _KERNEL_BUFFER)
