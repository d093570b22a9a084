"""An mlog client: finds the leader of a topic, stays with it, and looks again when it has moved.

    async with MlogClient(["localhost:9095"]) as client:
        await client.create_topic("orders", replicas=1)
        offset = await client.produce("orders", b"hello")
        async for entry in client.stream("orders", offset=0): ...

`should_reconnect` decides what is worth another attempt; everything else is raised as it came. A produce that
is retried may have been appended before: delivery is at least once.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, TypeVar

from headrace.clients.blocking import BlockingLoop
from headrace.clients.connection import FramedConnection, Link, open_connection
from headrace.clients.errors import UnexpectedResponse
from headrace.clients.retry import RetryPolicy
from headrace.wire.framing import Frame
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import decode, encode, frame_reader
from headrace.wire.mlog.codes import AckMode, ErrorCode
from headrace.wire.mlog.errors import ConnectionClosed, RPCError, should_reconnect
from headrace.wire.mlog.replication_batch import ReplicationRecord, decode_replication_batch

R = TypeVar("R", bound=m.Message)

CONSUMER_ID_DEFAULT: Final = "default"


class MlogClient:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        retry: RetryPolicy | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if not addresses:
            raise ValueError("at least one address")
        self._addresses = tuple(addresses)
        self._retry = retry or RetryPolicy(attempts_max=4)
        self._chance = chance
        self._leaders: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._is_closed = False

    # Records

    async def produce(self, topic: str, value: bytes, *, acks: AckMode = AckMode.LEADER) -> int:
        request = m.ProduceRequest(Topic=topic, Value=value, Acks=acks)
        return (await self._ask_leader(topic, request, m.ProduceResponse)).Offset

    async def produce_batch(
        self, topic: str, values: Sequence[bytes], *, acks: AckMode = AckMode.LEADER
    ) -> m.ProduceBatchResponse:
        request = m.ProduceBatchRequest(Topic=topic, Values=tuple(values), Acks=acks)
        return await self._ask_leader(topic, request, m.ProduceBatchResponse)

    async def fetch(self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT) -> m.LogEntry | None:
        """The record at `offset`; None when there is none yet."""
        request = m.FetchRequest(Topic=topic, Id=consumer_id, Offset=offset)
        try:
            return (await self._ask_leader(topic, request, m.FetchResponse)).Entry
        except RPCError as error:
            if error.code == ErrorCode.READ_OFFSET:
                return None
            raise

    async def fetch_batch(
        self, topic: str, *, offset: int, count_max: int, consumer_id: str = CONSUMER_ID_DEFAULT
    ) -> tuple[m.LogEntry, ...]:
        """Up to `count_max` records from `offset` on; none when there is nothing yet."""
        request = m.FetchBatchRequest(Topic=topic, Id=consumer_id, Offset=offset, MaxCount=count_max)
        try:
            return (await self._ask_leader(topic, request, m.FetchBatchResponse)).Entries
        except RPCError as error:
            if error.code == ErrorCode.READ_OFFSET:
                return ()
            raise

    async def stream(
        self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT
    ) -> AsyncGenerator[m.LogEntry, None]:
        """Records from `offset` on, waiting at the end of the log, for as long as the caller iterates."""
        connection = await self._open(await self.find_topic_leader(topic))
        try:
            request = m.FetchStreamRequest(Topic=topic, Id=consumer_id, Offset=offset)
            connection.write(encode(request))
            while True:
                response = _expect(await connection.receive(), m.FetchStreamResponse)
                if response.Entry is not None:
                    yield response.Entry
        finally:
            connection.close()

    async def replicate(
        self, topic: str, *, offset: int, batch_size: int, node_id: str
    ) -> AsyncGenerator[list[ReplicationRecord], None]:
        """The log from `offset` to its end, as replication batches: one ReplicateStream."""
        connection = await self._open(await self.find_topic_leader(topic))
        try:
            request = m.ReplicateRequest(Topic=topic, Offset=offset, BatchSize=batch_size, ReplicaNodeID=node_id)
            connection.write(encode(request))
            while True:
                response = _expect(await connection.receive(), m.ReplicateResponse)
                if response.RawChunk:
                    yield decode_replication_batch(response.RawChunk)
                if response.EndOfStream:
                    return
        finally:
            connection.close()

    # Offsets

    async def commit_offset(self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT) -> bool:
        request = m.CommitOffsetRequest(Topic=topic, Id=consumer_id, Offset=offset)
        return (await self._ask_leader(topic, request, m.CommitOffsetResponse)).Success

    async def fetch_offset(self, topic: str, *, consumer_id: str = CONSUMER_ID_DEFAULT) -> int:
        """The committed offset; 0 when there is none."""
        request = m.FetchOffsetRequest(Topic=topic, Id=consumer_id)
        return (await self._ask_leader(topic, request, m.FetchOffsetResponse)).Offset

    # Topics

    async def create_topic(self, topic: str, *, replicas: int = 1, leader: str = "") -> tuple[str, ...]:
        """The ids of the nodes that keep it. `leader` is the id of the node that should lead it."""
        request = m.CreateTopicRequest(Topic=topic, ReplicaCount=replicas, DesignatedLeaderNodeID=leader)
        return (await self._ask_raft_leader(request, m.CreateTopicResponse)).ReplicaNodeIds

    async def delete_topic(self, topic: str) -> None:
        await self._ask_raft_leader(m.DeleteTopicRequest(Topic=topic), m.DeleteTopicResponse)
        self._leaders.pop(topic, None)

    async def list_topics(self) -> tuple[m.TopicInfo, ...]:
        return (await self._ask_anyone(m.ListTopicsRequest(), m.ListTopicsResponse)).Topics

    async def find_topic_leader(self, topic: str) -> str:
        request = m.FindTopicLeaderRequest(Topic=topic)
        return (await self._ask_anyone(request, m.FindTopicLeaderResponse)).LeaderAddr

    async def find_raft_leader(self) -> str:
        return (await self._ask_anyone(m.FindRaftLeaderRequest(), m.FindRaftLeaderResponse)).RaftLeaderAddr

    async def apply_isr_update(self, topic: str, *, node_id: str, is_in_sync: bool) -> None:
        request = m.ApplyIsrUpdateEventRequest(Topic=topic, ReplicaNodeID=node_id, Isr=is_in_sync)
        await self._ask_raft_leader(request, m.ApplyIsrUpdateEventResponse)

    async def close(self) -> None:
        self._is_closed = True
        for link in self._links.values():
            link.disconnect()
        self._links.clear()

    async def __aenter__(self) -> "MlogClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Whom to ask

    async def _ask_leader(self, topic: str, request: m.Message, expected: type[R]) -> R:
        async def leader() -> str:
            if topic not in self._leaders:
                self._leaders[topic] = await self.find_topic_leader(topic)
            return self._leaders[topic]

        return await self._ask(leader, request, expected, forget=lambda: self._leaders.pop(topic, None))

    async def _ask_raft_leader(self, request: m.Message, expected: type[R]) -> R:
        return await self._ask(self.find_raft_leader, request, expected)

    async def _ask_anyone(self, request: m.Message, expected: type[R]) -> R:
        """The first address that answers. An answer that says "not known here" counts as one."""
        failure: Exception | None = None
        for address in self._addresses:
            try:
                return await self._exchange(address, request, expected)
            except RPCError:
                raise
            except (OSError, EOFError, ConnectionClosed) as error:
                failure = error
        assert failure is not None
        raise failure

    async def _ask(
        self,
        whom: Callable[[], Awaitable[str]],
        request: m.Message,
        expected: type[R],
        forget: Callable[[], object] = lambda: None,
    ) -> R:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._exchange(await whom(), request, expected)
            except (RPCError, OSError, EOFError, ConnectionClosed) as error:
                if not should_reconnect(error) or attempt >= self._retry.attempts_max or self._is_closed:
                    raise
                forget()
            await asyncio.sleep(self._retry.backoff_ms(attempt, chance=self._chance()) / 1000)

    async def _exchange(self, address: str, request: m.Message, expected: type[R]) -> R:
        if self._is_closed:
            raise ConnectionClosed("the client is closed")
        async with asyncio.timeout(self._retry.timeout_ms / 1000):
            link = self._links.get(address)
            if link is None:
                link = self._links[address] = Link(address, frame_reader)
            connection = await link.connect()
            reply = await connection.request(encode(request))
        return _expect(reply, expected)

    async def _open(self, address: str) -> FramedConnection:
        async with asyncio.timeout(self._retry.timeout_ms / 1000):
            return await open_connection(address, frame_reader())


class BlockingMlogClient:
    """The same client for code without an event loop."""

    def __init__(self, addresses: Sequence[str], *, retry: RetryPolicy | None = None) -> None:
        self._loop = BlockingLoop()
        self._client = MlogClient(addresses, retry=retry)

    def produce(self, topic: str, value: bytes, *, acks: AckMode = AckMode.LEADER) -> int:
        return self._loop.run(self._client.produce(topic, value, acks=acks))

    def produce_batch(
        self, topic: str, values: Sequence[bytes], *, acks: AckMode = AckMode.LEADER
    ) -> m.ProduceBatchResponse:
        return self._loop.run(self._client.produce_batch(topic, values, acks=acks))

    def fetch(self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT) -> m.LogEntry | None:
        return self._loop.run(self._client.fetch(topic, offset=offset, consumer_id=consumer_id))

    def fetch_batch(
        self, topic: str, *, offset: int, count_max: int, consumer_id: str = CONSUMER_ID_DEFAULT
    ) -> tuple[m.LogEntry, ...]:
        call = self._client.fetch_batch(topic, offset=offset, count_max=count_max, consumer_id=consumer_id)
        return self._loop.run(call)

    def stream(self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT) -> Iterator[m.LogEntry]:
        entries = self._client.stream(topic, offset=offset, consumer_id=consumer_id)
        try:
            while True:
                yield self._loop.run(_next(entries))
        except StopAsyncIteration:
            return
        finally:
            self._loop.run(_close(entries))

    def commit_offset(self, topic: str, *, offset: int, consumer_id: str = CONSUMER_ID_DEFAULT) -> bool:
        return self._loop.run(self._client.commit_offset(topic, offset=offset, consumer_id=consumer_id))

    def fetch_offset(self, topic: str, *, consumer_id: str = CONSUMER_ID_DEFAULT) -> int:
        return self._loop.run(self._client.fetch_offset(topic, consumer_id=consumer_id))

    def create_topic(self, topic: str, *, replicas: int = 1, leader: str = "") -> tuple[str, ...]:
        return self._loop.run(self._client.create_topic(topic, replicas=replicas, leader=leader))

    def delete_topic(self, topic: str) -> None:
        self._loop.run(self._client.delete_topic(topic))

    def list_topics(self) -> tuple[m.TopicInfo, ...]:
        return self._loop.run(self._client.list_topics())

    def find_topic_leader(self, topic: str) -> str:
        return self._loop.run(self._client.find_topic_leader(topic))

    def find_raft_leader(self) -> str:
        return self._loop.run(self._client.find_raft_leader())

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.close()

    def __enter__(self) -> "BlockingMlogClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _next(entries: AsyncGenerator[m.LogEntry, None]) -> m.LogEntry:
    return await anext(entries)


async def _close(entries: AsyncGenerator[m.LogEntry, None]) -> None:
    await entries.aclose()


def _expect(frame: Frame, expected: type[R]) -> R:
    message = decode(frame.header[0], frame.payload)
    if isinstance(message, m.RPCErrorResponse):
        raise RPCError.of(message)
    if not isinstance(message, expected):
        raise UnexpectedResponse(f"{type(message).__name__} instead of {expected.__name__}")
    return message
