"""Connections that ZeroMQ has accepted count against the open files like all others.

ZeroMQ accepts in a thread of its own and asks nobody. It tells what it has accepted, though, and a connection for which
there are no files is shut down then: ZeroMQ takes that for a client that has gone, and closes it.
"""

import asyncio
import contextlib
import socket as network

import structlog
import zmq
from zmq.utils.monitor import recv_monitor_message

from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.open_files import files_for_connections

log = structlog.get_logger(__name__)


class AcceptGuard:
    """Watches one listening socket."""

    def __init__(self, socket: "zmq.Socket[bytes]", metrics: LogjamMetrics) -> None:
        self._socket = socket
        self._metrics = metrics
        self._files_end = files_for_connections()
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(zmq.EVENT_ACCEPTED)
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(self._monitor.getsockopt(zmq.FD))
        self._is_turning_away = False

    def open(self) -> None:
        self._loop.add_reader(self._descriptor, self._heed)
        self._heed()

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._socket.disable_monitor()
        # The context waits for this socket, too, when it ends.
        self._monitor.close(linger=0)

    def _heed(self) -> None:
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._judge(int(recv_monitor_message(self._monitor)["value"]))

    def _judge(self, file_number: int) -> None:
        if file_number < self._files_end:
            self._is_turning_away = False
            return
        self._metrics.turned_away_total += 1
        if not self._is_turning_away:
            self._is_turning_away = True
            log.error("nearly out of files: new connections are closed", door="logjam", connections=self._files_end)
        # It may be closed by now, and its number another's: that one has a number too high as well. The file stays ZeroMQ's:
        # a copy of our own would need one more of what there is too little of.
        with contextlib.suppress(OSError):
            accepted = network.socket(fileno=file_number)
            try:
                accepted.shutdown(network.SHUT_RDWR)
            finally:
                accepted.detach()
