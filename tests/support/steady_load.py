"""Load on a door at a steady rate, spread evenly over time and connections, by a process that costs little itself.

    python -m tests.support.steady_load load rustlog HOST:PORT TOPIC --rate 64000
    python -m tests.support.steady_load echo

Every connection writes a few requests at once, as a pipelining client does, and the connections write one after the other:
at 64,000 requests a second and 16 requests a write, somebody writes every 250 us. Answers are only counted. The load runs
until SIGTERM and then prints one JSON object. `echo` serves the control: it prints its address, and answers every write with
a third of its bytes, so that the same load can run beside a node instead of on it.
"""

import argparse
import asyncio
import json
import signal
import socket
import time

import uvloop
from tests.support.door_load import frame_of

ANSWER = {"rustlog": b'"ProduceResponse"', "mlog": b'"Offset"'}
"""What stands in every good answer once, and in no other."""
DRAIN_INTERVAL_S = 0.002
WORST_AFTER_S = 1.0
"""Lateness before that is the start's."""


class Connection:
    def __init__(self, address: str, mark: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mark = mark
        self._tail = b""
        self.answered = 0

    def write(self, frames: bytes) -> None:
        """Blocks when the other side does not read: then the load is late, and says so."""
        self._socket.sendall(frames)

    def drain(self) -> None:
        try:
            received = self._tail + self._socket.recv(1024 * 1024, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        self.answered += received.count(self._mark)
        self._tail = received[1 - len(self._mark) :]


def load(options: argparse.Namespace) -> dict[str, float]:
    frame, _ = frame_of(options.door, options.topic, options.size, 1)
    frames, interval = frame * options.burst, options.burst / options.rate
    connections = [Connection(options.address, ANSWER[options.door]) for _ in range(options.connections)]
    is_stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    started = drained = now = time.perf_counter()
    writes, worst = 0, 0.0
    while not is_stopped:
        due = int((now - started) / interval) - writes
        if now - started > WORST_AFTER_S:
            worst = max(worst, (due - 1) * interval)
        for _ in range(due):
            connections[writes % len(connections)].write(frames)
            writes += 1
        if now - drained > DRAIN_INTERVAL_S:
            drained = now
            for connection in connections:
                connection.drain()
        time.sleep(max(0.0, started + (writes + 1) * interval - time.perf_counter()))
        now = time.perf_counter()
    return {
        "sent": writes * options.burst,
        "answered": sum(connection.answered for connection in connections),
        "seconds": now - started,
        "late_ms": worst * 1000,
    }


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert hasattr(self._transport, "write")
        self._transport.write(data[: len(data) // 3])


async def echo() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"{host}:{port}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("echo")
    loading = modes.add_parser("load")
    loading.add_argument("door", choices=sorted(ANSWER))
    loading.add_argument("address")
    loading.add_argument("topic")
    loading.add_argument("--rate", type=float, required=True, help="requests per second")
    loading.add_argument("--connections", type=int, default=16)
    loading.add_argument("--burst", type=int, default=16, help="requests per write")
    loading.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    if options.mode == "echo":
        uvloop.run(echo())
    else:
        print(json.dumps(load(options)))


if __name__ == "__main__":
    main()
