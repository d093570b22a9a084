"""`python -m headrace.bench.delay PORT TARGET_PORT DELAYS`: a store far away, made of one nearby.

Relays connections on the loopback and holds every reply back for a while that is drawn by the request's method, so
that what is measured waits as it would for a bucket. HTTP/1.1 without pipelining: a reply begins when the server
speaks after the client did. Bytes go from socket to socket through a pipe and are never seen here, which leaves the
cores to those who are measured. Only the wait for the first byte is imitated, not the bandwidth of a network.
"""

import fcntl
import os
import random
import select
import socket
import sys
import threading
import time
from typing import Final

import msgspec

_PIPE_BYTES: Final = 1024 * 1024
_METHOD_BYTES: Final = 4
_BACKLOG: Final = 128


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds before a reply begins: from the first to the second, all equally likely."""

    put: tuple[float, float] = (0.0, 0.0)
    other: tuple[float, float] = (0.0, 0.0)

    def describe(self) -> str:
        return f"PUT +{self.put[0]:.0f}-{self.put[1]:.0f} ms, others +{self.other[0]:.0f}-{self.other[1]:.0f} ms"


def main() -> None:
    port, target_port, delays = int(sys.argv[1]), int(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=Delays)
    with socket.create_server(("127.0.0.1", port), backlog=_BACKLOG) as server:
        while True:
            client, _ = server.accept()
            threading.Thread(target=_serve, args=(client, target_port, delays), daemon=True).start()


def _serve(client: socket.socket, target_port: int, delays: Delays) -> None:
    with client:
        try:
            with socket.create_connection(("127.0.0.1", target_port)) as server:
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _relay(client, server, delays)
        except OSError:
            pass  # Either end went away; closing both tells the other.


def _relay(client: socket.socket, server: socket.socket, delays: Delays) -> None:
    pipe_out, pipe_in = os.pipe()
    fcntl.fcntl(pipe_in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    poll = select.poll()
    poll.register(client, select.POLLIN)
    poll.register(server, select.POLLIN)
    method = b""
    is_request_next = True
    try:
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if client.fileno() in ready:
                if is_request_next:
                    method = client.recv(_METHOD_BYTES, socket.MSG_PEEK)
                    is_request_next = False
                if not _move(client, server, pipe_out, pipe_in):
                    return
            if server.fileno() in ready:
                if not is_request_next:
                    time.sleep(random.uniform(*(delays.put if method == b"PUT " else delays.other)) / 1e3)
                    is_request_next = True
                if not _move(server, client, pipe_out, pipe_in):
                    return
    finally:
        os.close(pipe_out)
        os.close(pipe_in)


def _move(source: socket.socket, target: socket.socket, pipe_out: int, pipe_in: int) -> bool:
    """Pass on what has come; False when the source has ended."""
    size = os.splice(source.fileno(), pipe_in, _PIPE_BYTES, flags=os.SPLICE_F_MOVE)
    left = size
    while left:
        left -= os.splice(pipe_out, target.fileno(), left, flags=os.SPLICE_F_MOVE)
    return size > 0


if __name__ == "__main__":
    main()
