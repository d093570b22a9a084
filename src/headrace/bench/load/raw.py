"""The load of raw frames over uvloop: cheaper than the brokers it measures, and with exactly the batches it names.

Closed loop: a connection sends its next request when the reply to the last has come, its error codes have been looked
at and found to be zero. A frame that says otherwise ends the run with the code as the problem.
"""

import asyncio
import itertools
import os
import socket
import time
from array import array
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Final, cast

import uvloop

from headrace.bench.frames import (
    Exchange,
    fetch_exchange,
    find_problem,
    hello_exchange,
    produce_exchange,
    record_batch,
    rustlog_produce_exchange,
)
from headrace.bench.load.jobs import (
    FetchRequestsJob,
    HoldConnectionsJob,
    Outcome,
    ProduceRequestsJob,
    RustLogRequestsJob,
)
from headrace.bench.load.librdkafka import summarise

Begin = Callable[[], None]

_OPENED_AT_ONCE: Final = 40
"""Below Kafka's listen backlog of 50: beyond it a connection waits a second for its SYN to be sent again."""

_DRAIN_SECONDS_MAX: Final = 30


def produce_requests(job: ProduceRequestsJob, begin: Begin) -> Outcome:
    batch = _batch(job.record_bytes, job.records_per_batch)
    exchanges = [
        [produce_exchange(topic=job.topic, partition=index % job.partitions, batch=batch)]
        for index in range(job.connections)
    ]
    run = _ClosedLoop(job.bootstrap, exchanges)
    return run.measure(begin, warm_up_seconds=job.warm_up_seconds, seconds=job.seconds, bytes_each=len(batch))


def fetch_requests(job: FetchRequestsJob, begin: Begin) -> Outcome:
    batch = _batch(job.record_bytes, job.records_per_batch)
    problem = _fill(job, batch)
    if problem is not None:
        begin()
        return Outcome(count=0, seconds=0.0, problems=[problem])
    exchanges = [
        [
            fetch_exchange(
                topic=job.topic,
                partition=index % job.partitions,
                offset=nth * job.records_per_batch,
                bytes_max=len(batch),
                bytes_expected=len(batch),
            )
            for nth in range(job.batches_per_partition)
        ]
        for index in range(job.connections)
    ]
    run = _ClosedLoop(job.bootstrap, exchanges)
    return run.measure(begin, warm_up_seconds=job.warm_up_seconds, seconds=job.seconds, bytes_each=len(batch))


def rustlog_requests(job: RustLogRequestsJob, begin: Begin) -> Outcome:
    record = os.urandom(job.record_bytes)
    exchanges = [
        [rustlog_produce_exchange(topic=job.topic, partition=index % job.partitions, record=record)]
        for index in range(job.connections)
    ]
    run = _ClosedLoop(job.bootstrap, exchanges)
    return run.measure(begin, warm_up_seconds=job.warm_up_seconds, seconds=job.seconds, bytes_each=len(record))


def _batch(record_bytes: int, records_per_batch: int) -> bytes:
    value = os.urandom(record_bytes)
    return record_batch([value] * records_per_batch, timestamp_ms=time.time_ns() // 1_000_000)


def _fill(job: FetchRequestsJob, batch: bytes) -> str | None:
    """Put the batches there that will be fetched, one request at a time; the problem met, if any."""
    host, _, port = job.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_DRAIN_SECONDS_MAX) as connection:
        replies = connection.makefile("rb")
        for partition in range(job.partitions):
            exchange = produce_exchange(topic=job.topic, partition=partition, batch=batch)
            for _ in range(job.batches_per_partition):
                connection.sendall(exchange.request)
                length = replies.read(_LENGTH_BYTES)
                reply = length + replies.read(int.from_bytes(length))
                problem = find_problem(exchange, reply, len(reply))
                if problem is not None:
                    return problem
    return None


def hold_connections(job: HoldConnectionsJob, begin: Begin) -> Outcome:
    hello = [hello_exchange(job.door)]

    async def hold() -> Outcome:
        tally = _Tally()
        connections = [_Connection(hello, tally) for _ in range(job.connections)]
        began = time.perf_counter()
        for some in _chunks(connections):
            await _open(job.bootstrap, some)
            for connection in some:
                connection.send()
            await _await_replies(some, tally)
        opening_seconds = time.perf_counter() - began
        begin()
        await asyncio.sleep(0)  # Lets the loop hear of connections that were closed meanwhile.
        held = sum(connection.is_open for connection in connections)
        if held < job.connections:
            tally.problems.append(f"only {held} of {job.connections} connections stayed open")
        return Outcome(count=held, seconds=opening_seconds, problems=tally.problems[:5])

    return _run_loop(hold())


def _run_loop(main: Coroutine[None, None, Outcome]) -> Outcome:
    outcome: Outcome = uvloop.run(main)
    return outcome


_BUFFER: Final = memoryview(bytearray(256 * 1024))
"""Where every connection's bytes land: a loop fills and hands over one buffer at a time."""

_LENGTH_BYTES: Final = 4


class _Tally:
    """What all connections of one run count together."""

    __slots__ = ("count", "is_over", "problems", "waits_ms")

    def __init__(self) -> None:
        self.count = 0
        self.is_over = True
        """No connection sends a second request while this holds."""
        self.waits_ms = array("d")
        self.problems: list[str] = []


class _ClosedLoop:
    """One connection for each list of exchanges, which it goes through again and again."""

    def __init__(self, bootstrap: str, exchanges: Sequence[Sequence[Exchange]]) -> None:
        self._bootstrap = bootstrap
        self._tally = _Tally()
        self._connections = [_Connection(own, self._tally) for own in exchanges]

    def measure(self, begin: Begin, *, warm_up_seconds: float, seconds: float, bytes_each: int) -> Outcome:
        return _run_loop(self._measure(begin, warm_up_seconds, seconds, bytes_each))

    async def _measure(self, begin: Begin, warm_up_seconds: float, seconds: float, bytes_each: int) -> Outcome:
        tally = self._tally
        for some in _chunks(self._connections):
            await _open(self._bootstrap, some)
        await self._run(warm_up_seconds)
        begin()
        if tally.problems:
            return Outcome(count=0, seconds=0.0, problems=tally.problems[:5])
        tally.count, tally.waits_ms = 0, array("d")
        began = time.perf_counter()
        await self._run(seconds)
        return Outcome(
            count=tally.count,
            bytes=tally.count * bytes_each,
            seconds=time.perf_counter() - began,
            latency=summarise(tally.waits_ms),
            problems=tally.problems[:5],
        )

    async def _run(self, seconds: float) -> None:
        """Every connection busy for `seconds`, then until its last reply has come."""
        self._tally.is_over = False
        for connection in self._connections:
            connection.send()
        await asyncio.sleep(seconds)
        self._tally.is_over = True
        await _await_replies(self._connections, self._tally)


def _chunks(connections: "list[_Connection]") -> "Iterator[list[_Connection]]":
    for first in range(0, len(connections), _OPENED_AT_ONCE):
        yield connections[first : first + _OPENED_AT_ONCE]


async def _open(bootstrap: str, connections: "Iterable[_Connection]") -> None:
    host, _, port = bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()

    async def open_one(connection: "_Connection") -> None:
        await loop.create_connection(lambda: connection, host, int(port))

    await asyncio.gather(*(open_one(connection) for connection in connections))


async def _await_replies(connections: "Sequence[_Connection]", tally: _Tally) -> None:
    deadline = time.perf_counter() + _DRAIN_SECONDS_MAX
    while any(connection.is_waiting for connection in connections) and not tally.problems:
        if time.perf_counter() > deadline:
            tally.problems.append(f"a request was not answered in {_DRAIN_SECONDS_MAX} s")
        await asyncio.sleep(0.001)


class _Connection(asyncio.BufferedProtocol):
    """One connection with at most one request under way. Keeps the head of a reply, counts the rest."""

    def __init__(self, exchanges: Sequence[Exchange], tally: _Tally) -> None:
        self.is_waiting = False
        self.is_open = False
        self._upcoming = itertools.cycle(exchanges)
        self._tally = tally
        self._head_bytes = exchanges[0].head_bytes
        self._head = bytearray()

    def send(self) -> None:
        self._exchange = next(self._upcoming)
        self._head.clear()
        self._received = 0
        self._reply_bytes = _LENGTH_BYTES
        self.is_waiting = True
        self._sent_at = time.perf_counter()
        self._transport.write(self._exchange.request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not asyncio's.
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self.is_waiting:
            self._tally.problems.append(f"the broker closed a connection instead of answering: {error}")

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, size: int) -> None:
        missing = self._head_bytes - len(self._head)
        if missing > 0:
            self._head += _BUFFER[: min(missing, size)]
        self._received += size
        if self._received >= _LENGTH_BYTES:
            self._reply_bytes = _LENGTH_BYTES + int.from_bytes(self._head[:_LENGTH_BYTES])
            if self._received >= self._reply_bytes:
                self._finish()

    def _finish(self) -> None:
        tally = self._tally
        tally.waits_ms.append((time.perf_counter() - self._sent_at) * 1e3)
        tally.count += 1
        self.is_waiting = False
        problem = find_problem(self._exchange, self._head, self._reply_bytes)
        if problem is not None:
            tally.problems.append(problem)
        elif not tally.is_over:
            self.send()
