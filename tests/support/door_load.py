"""Load on a door from a process of its own: raw frames, pipelined, as fast as they are answered.

    python -m tests.support.door_load rustlog HOST:PORT TOPIC --connections 16 --depth 32 --requests 100000 --size 100

Prints one JSON object: how many requests, in how many seconds, and the latencies of requests in milliseconds.
"""

import argparse
import asyncio
import base64
import json
import os
import struct
import time
from collections import deque
from typing import cast

import uvloop
import zmq

from headrace.wire.logjam.meta import Meta, encode_meta


class Client(asyncio.Protocol):
    """Keeps `depth` requests under way until all of its share are answered."""

    def __init__(self, frame: bytes, header: struct.Struct, *, depth: int, requests: int) -> None:
        self._frame = frame
        self._header = header
        self._depth = depth
        self._left = requests
        self._pending = bytearray()
        self._sent_at: deque[float] = deque()
        self._transport: asyncio.Transport | None = None
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send(min(self._depth, self._left))

    def send(self, count: int) -> None:
        assert self._transport is not None
        self._left -= count
        self._sent_at.extend([time.perf_counter()] * count)
        self._transport.write(self._frame * count)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        answered, position, size = 0, 0, self._header.size
        while len(self._pending) - position >= size:
            end = position + size + self._header.unpack_from(self._pending, position)[-1]
            if end > len(self._pending):
                break
            answer = self._pending[position:end]
            if b'"Error"' in answer or b'"code"' in answer:
                self.done.set_exception(RuntimeError(bytes(answer).decode()))
                return
            position, answered = end, answered + 1
        del self._pending[:position]
        now = time.perf_counter()
        self.latencies += [now - self._sent_at.popleft() for _ in range(answered)]
        again = min(answered, self._left)
        if again:
            self.send(again)
        if not self._sent_at and not self._left and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed"))


def frame_of(door: str, topic: str, size: int, batch: int) -> tuple[bytes, struct.Struct]:
    value = base64.b64encode(os.urandom(size)).decode()
    request: dict[str, object]
    if door == "rustlog":
        request = {"type": "Produce", "topic": topic, "partition": 0, "records": [value] * batch}
        payload = json.dumps(request, separators=(",", ":")).encode()
        return struct.pack(">I", len(payload)) + payload, struct.Struct(">I")
    if batch == 1:
        request, message_type = {"Topic": topic, "Value": value, "Acks": 1}, 2
    else:
        request, message_type = {"Topic": topic, "Values": [value] * batch, "Acks": 1}, 4
    payload = json.dumps(request, separators=(",", ":")).encode()
    return struct.pack(">HI", message_type, len(payload)) + payload, struct.Struct(">HI")


async def load(options: argparse.Namespace) -> dict[str, float]:
    frame, header = frame_of(options.door, options.topic, options.size, options.batch)
    host, _, port = options.address.rpartition(":")
    loop = asyncio.get_running_loop()
    share = options.requests // options.connections

    def client() -> Client:
        return Client(frame, header, depth=options.depth, requests=share)

    started = time.perf_counter()
    clients = [(await loop.create_connection(client, host, int(port)))[1] for _ in range(options.connections)]
    await asyncio.gather(*(each.done for each in clients))
    seconds = time.perf_counter() - started
    latencies = sorted(latency for each in clients for latency in each.latencies)
    return {
        "requests": len(latencies),
        "seconds": seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
    }


def push(options: argparse.Namespace) -> dict[str, float]:
    """Logjam messages over PUSH; how fast they are stored is for the caller to see."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, 1_000_000)
    socket.connect(f"tcp://{options.address}")
    body = b'{"action":"Home#index","request_id":"%s","x":"' % (b"0" * 32)
    body += b"x" * (options.size - len(body) - 2) + b'"}'
    started = time.perf_counter()
    for sequence in range(1, options.requests + 1):
        meta = encode_meta(Meta(created_ms=time.time_ns() // 1_000_000, sequence=sequence))
        socket.send_multipart((options.topic.encode(), b"logs.bench", body, meta))
    socket.close()
    context.term()
    return {"requests": options.requests, "seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("door", choices=["rustlog", "mlog", "logjam"])
    parser.add_argument("address")
    parser.add_argument("topic", help="topic, or app-env for logjam")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    figures = push(options) if options.door == "logjam" else uvloop.run(load(options))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
