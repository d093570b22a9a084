"""The same load over TCP and over QUIC: produce and fetch requests on a few connections or streams, counted in bytes and in the node's CPU time."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import uvloop
from tests.support.quic import Frames
from tests.support.raw_kafka import FETCH_VERSION, PRODUCE_VERSION, RawKafka, batch_of

from headrace.clients.connection import split_address
from headrace.clients.quic import QuicClient, Trust
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

Way = Literal["tcp", "quic", "quic-one"]
RECORD_BYTES = 1024
IN_FLIGHT = 5
_TICKS = os.sysconf("SC_CLK_TCK")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    megabytes_per_second: float
    megabytes_per_node_cpu_second: float


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Load:
    """`streams` of them, each with a topic of its own, for some seconds."""

    def __init__(self, kafka: str, quic: str, pid: int, *, batch_bytes: int = 256 * 1024) -> None:
        self._kafka, self._quic, self._pid = kafka, quic, pid
        self._fetch_bytes = min(4 * batch_bytes, 1 << 20)
        self._values = [os.urandom(RECORD_BYTES) for _ in range(batch_bytes // RECORD_BYTES)]

    async def produce(self, way: Way, *, streams: int, seconds: float) -> Measured:
        def request(topic: str) -> bytes:
            data = PartitionProduceData(0, batch_of(self._values))
            asked = ProduceRequest(
                acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=[data])]
            )
            return bytes(encode_request(asked, PRODUCE_VERSION, 1, "load"))

        return await self._measured(way, streams, seconds, request, lambda sent, got: sent)

    async def fetch(self, way: Way, *, streams: int, seconds: float) -> Measured:
        def request(topic: str) -> bytes:
            part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=self._fetch_bytes)
            asked = FetchRequest(
                max_wait_ms=100, min_bytes=1, max_bytes=self._fetch_bytes, topics=[FetchTopic(topic, partitions=[part])]
            )
            return bytes(encode_request(asked, FETCH_VERSION, 1, "load"))

        return await self._measured(way, streams, seconds, request, lambda sent, got: got)

    def fill(self, streams: int, *, batches: int = 8) -> None:
        with RawKafka(self._kafka) as kafka:
            for number in range(streams):
                kafka.create_topic(f"load-{number}")
                for _ in range(batches):
                    kafka.produce(f"load-{number}", 0, batch_of(self._values))

    async def _measured(
        self,
        way: Way,
        streams: int,
        seconds: float,
        request: Callable[[str], bytes],
        counted: Callable[[int, int], int],
    ) -> Measured:
        # As many as over TCP, as the proxy has them; or all streams on one.
        connections = 1 if way == "quic-one" else streams
        async with QuicClient(self._quic, trust=Trust(is_blind=True), connections_max=connections) as client:
            opened = [await self._opened(way, client) for _ in range(streams)]
            loop = asyncio.get_running_loop()
            # A moment for congestion windows and caches, then measured.
            warm = loop.time() + min(seconds / 4, 2.0)
            await asyncio.gather(*(_ask(frames, request(f"load-{n}"), warm) for n, frames in enumerate(opened)))
            cpu, began = cpu_seconds(self._pid), time.monotonic()
            end = loop.time() + seconds
            moved = await asyncio.gather(*(_ask(frames, request(f"load-{n}"), end) for n, frames in enumerate(opened)))
            took, used = time.monotonic() - began, cpu_seconds(self._pid) - cpu
            for frames in opened:
                transport: Any = frames.stream  # Any: of asyncio, or ours
                transport.close()
        total = sum(counted(*each) for each in moved) / 2**20
        return Measured(megabytes_per_second=total / took, megabytes_per_node_cpu_second=total / max(used, 1e-3))

    async def _opened(self, way: Way, client: QuicClient) -> Frames:
        frames = Frames()
        if way != "tcp":
            await client.open_stream(frames)
        else:
            await asyncio.get_running_loop().create_connection(lambda: frames, *split_address(self._kafka))
        return frames


async def _ask(frames: Frames, request: bytes, end: float) -> tuple[int, int]:
    """Bytes sent and received by requests that were answered."""
    loop = asyncio.get_running_loop()
    transport: Any = frames.stream  # Any: of asyncio, or ours
    sent = got = under_way = 0
    while loop.time() < end or under_way:
        while under_way < IN_FLIGHT and loop.time() < end:
            transport.write(request)
            under_way += 1
        answer = await frames.frame()
        under_way -= 1
        sent += len(request)
        got += len(answer)
    return sent, got


Measure = Callable[[Way], Awaitable[Measured]]


def main(arguments: list[str]) -> None:
    """For a process in another network namespace: KAFKA QUIC PID VERB WAY STREAMS SECONDS BATCH."""
    kafka, quic, pid, verb, way, streams, seconds, batch = arguments
    load = Load(kafka, quic, int(pid), batch_bytes=int(batch))
    if verb == "fill":
        load.fill(int(streams))
        return
    found = uvloop.run(getattr(load, verb)(way, streams=int(streams), seconds=float(seconds)))
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
