"""A RustLog client: reconnects, backs off, and stops hammering a broker that does not answer.

    async with RustLogClient("localhost:9096") as client:
        await client.create_topic("logs", partitions=1)
        appended = await client.produce("logs", [b"hello", b"world"])
        fetched = await client.fetch("logs", offset=appended.base_offset)

Calls may run concurrently: they share one connection and are answered in the order they were made. A produce
that is retried after a lost connection may have been appended the first time too: delivery is at least once.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from headrace.clients.blocking import BlockingLoop
from headrace.clients.connection import Link
from headrace.clients.errors import ServerError, UnexpectedResponse, rustlog_error
from headrace.clients.retry import CircuitBreaker, RetryPolicy
from headrace.clock import Clock, SystemClock
from headrace.errors import MalformedRequest
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import decode_response, encode, frame_reader
from headrace.wire.rustlog.codes import ConnectionState

R = TypeVar("R", bound=m.Message)

FETCH_BYTES_DEFAULT = 1_048_576


class RustLogClient:
    def __init__(
        self,
        address: str,
        *,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._chance = chance
        self.breaker = CircuitBreaker(self._retry.failures_to_open, self._retry.open_ms)
        self._link = Link(address, frame_reader)
        self._is_closed = False

    @property
    def state(self) -> ConnectionState:
        if self._is_closed:
            return ConnectionState.CLOSED
        connection = self._link.connection
        if connection is None:
            return ConnectionState.TCP_CONNECTING if self._link.is_connecting else ConnectionState.CLOSED
        return ConnectionState.REQUEST_ACTIVE if connection.requests_active else ConnectionState.CONNECTED

    async def produce(self, topic: str, records: Sequence[bytes], *, partition: int = 0) -> m.ProduceResponse:
        request = m.Produce(topic=topic, partition=partition, records=list(records))
        return await self._call(request, m.ProduceResponse)

    async def fetch(
        self,
        topic: str,
        *,
        offset: int,
        partition: int = 0,
        group_id: str = "",
        max_bytes: int = FETCH_BYTES_DEFAULT,
    ) -> m.FetchResponse:
        request = m.Fetch(group_id=group_id, topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)
        return await self._call(request, m.FetchResponse)

    async def commit(self, group: str, topic: str, *, offset: int, partition: int = 0) -> bool:
        """False: there is no such topic or partition."""
        request = m.OffsetCommit(group=group, topic=topic, partition=partition, offset=offset)
        return (await self._call(request, m.OffsetCommitResponse)).success

    async def committed(self, group: str, topic: str, *, partition: int = 0) -> int | None:
        request = m.OffsetFetch(group=group, topic=topic, partition=partition)
        return (await self._call(request, m.OffsetFetchResponse)).offset

    async def create_topic(self, topic: str, *, partitions: int = 1) -> m.CreateTopicResponse:
        return await self._call(m.CreateTopic(topic=topic, partition_count=partitions), m.CreateTopicResponse)

    async def list_topics(self) -> list[m.TopicSummary]:
        return (await self._call(m.ListTopics(), m.ListTopicsResponse)).topics

    async def describe_topic(self, topic: str) -> m.DescribeTopicResponse:
        return await self._call(m.DescribeTopic(topic=topic), m.DescribeTopicResponse)

    async def describe_partition(self, topic: str, partition: int) -> m.DescribePartitionResponse:
        request = m.DescribePartition(topic=topic, partition=partition)
        return await self._call(request, m.DescribePartitionResponse)

    async def metrics(self) -> m.MetricsFetchResponse:
        return await self._call(m.MetricsFetch(), m.MetricsFetchResponse)

    async def ping(self) -> None:
        await self._call(m.Ping(), m.Pong)

    async def close(self) -> None:
        self._is_closed = True
        self._link.disconnect()

    async def __aenter__(self) -> "RustLogClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, request: m.Request, expected: type[R]) -> R:
        frame = encode(request)
        attempt = 0
        while True:
            attempt += 1
            self.breaker.admit(now_ms=self._clock.monotonic_ms())
            try:
                response = await self._exchange(frame)
            except (OSError, EOFError, MalformedRequest, ServerError) as error:
                self.breaker.failed(now_ms=self._clock.monotonic_ms())
                if not isinstance(error, ServerError):
                    self._link.disconnect()
                if attempt >= self._retry.attempts_max or self._is_closed:
                    raise
                await asyncio.sleep(self._retry.backoff_ms(attempt, chance=self._chance()) / 1000)
                continue
            self.breaker.succeeded()
            if isinstance(response, m.Error):
                raise rustlog_error(response)
            if not isinstance(response, expected):
                raise UnexpectedResponse(f"{type(response).__name__} instead of {expected.__name__}")
            return response

    async def _exchange(self, frame: bytes) -> m.Response:
        async with asyncio.timeout(self._retry.timeout_ms / 1000):
            connection = await self._link.connect()
            reply = await connection.request(frame)
        response = decode_response(reply.payload)
        if isinstance(response, m.Error) and isinstance(error := rustlog_error(response), ServerError):
            raise error
        return response


class BlockingRustLogClient:
    """The same client for code without an event loop."""

    def __init__(self, address: str, *, retry: RetryPolicy | None = None) -> None:
        self._loop = BlockingLoop()
        self._client = RustLogClient(address, retry=retry)

    def produce(self, topic: str, records: Sequence[bytes], *, partition: int = 0) -> m.ProduceResponse:
        return self._loop.run(self._client.produce(topic, records, partition=partition))

    def fetch(
        self,
        topic: str,
        *,
        offset: int,
        partition: int = 0,
        group_id: str = "",
        max_bytes: int = FETCH_BYTES_DEFAULT,
    ) -> m.FetchResponse:
        call = self._client.fetch(topic, offset=offset, partition=partition, group_id=group_id, max_bytes=max_bytes)
        return self._loop.run(call)

    def commit(self, group: str, topic: str, *, offset: int, partition: int = 0) -> bool:
        return self._loop.run(self._client.commit(group, topic, offset=offset, partition=partition))

    def committed(self, group: str, topic: str, *, partition: int = 0) -> int | None:
        return self._loop.run(self._client.committed(group, topic, partition=partition))

    def create_topic(self, topic: str, *, partitions: int = 1) -> m.CreateTopicResponse:
        return self._loop.run(self._client.create_topic(topic, partitions=partitions))

    def list_topics(self) -> list[m.TopicSummary]:
        return self._loop.run(self._client.list_topics())

    def describe_topic(self, topic: str) -> m.DescribeTopicResponse:
        return self._loop.run(self._client.describe_topic(topic))

    def describe_partition(self, topic: str, partition: int) -> m.DescribePartitionResponse:
        return self._loop.run(self._client.describe_partition(topic, partition))

    def metrics(self) -> m.MetricsFetchResponse:
        return self._loop.run(self._client.metrics())

    def ping(self) -> None:
        self._loop.run(self._client.ping())

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.close()

    def __enter__(self) -> "BlockingRustLogClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
