"""Kafka clients inside the simulation: one connection, requests by correlation id, over headrace's own codecs."""

import asyncio
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from tests.simulation.network import Address, End, Network
from tests.support.raw_kafka import EARLIEST, FETCH_VERSION, LATEST, Producer, produce_request

from headrace.records.batch import has_valid_crc, iterate_batches
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_batch_records
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse, PartitionData
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.kafka.messages.sync_group_response import SyncGroupResponse
from headrace.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.txn_offset_commit_response import TxnOffsetCommitResponse

TIMEOUT_S: Final = 10.0
MEMBER_ID_REQUIRED: Final = 79
READ_COMMITTED: Final = 1
_PRODUCE_VERSION: Final = 9

Response = TypeVar("Response", bound=Message)


class Refused(Exception):
    """The node answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class Client(asyncio.Protocol):
    """Raises `OSError` when the connection ends, `TimeoutError` when an answer does not come, `Refused` for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._end: End | None = None
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._numbers = itertools.count(1)

    async def connect(self, network: Network, address: Address) -> "Client":
        async with asyncio.timeout(TIMEOUT_S):
            self._end = await network.connect(self, network.host(self._name), address)
        return self

    def close(self) -> None:
        if self._end is not None:
            self._end.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            (number,) = struct.unpack_from(">i", frame)
            waiter = self._waiting.pop(number, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(memoryview(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end = None
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionResetError("the connection has ended"))

    def send(self, request: Message, version: int) -> "asyncio.Future[memoryview]":
        if self._end is None:
            raise ConnectionResetError("the connection has ended")
        number = next(self._numbers)
        waiter = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._end.write(encode_request(request, version, number, self._name))
        return waiter

    async def call(self, request: Message, version: int, kind: type[Response]) -> Response:
        return await answered(self.send(request, version), version, kind)

    # -- topics and records --------------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = CreatableTopic(name, partitions, 1, [], [CreatableTopicConfig(*each) for each in configs.items()])
        result = (await self.call(CreateTopicsRequest([topic]), 5, CreateTopicsResponse)).topics[0]
        _check("CreateTopics", result.error_code, 36)

    async def init_producer(self, transactional_id: str | None = None, timeout_ms: int = 60_000) -> Producer:
        request = InitProducerIdRequest(transactional_id, timeout_ms)
        found = await self.call(request, 4, InitProducerIdResponse)
        _check("InitProducerId", found.error_code)
        return Producer(found.producer_id, found.producer_epoch)

    def send_batch(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, transactional_id: str | None = None
    ) -> "asyncio.Future[memoryview]":
        request = produce_request(
            topic, partition, batch, acks=acks, timeout_ms=5_000, transactional_id=transactional_id
        )
        return self.send(request, _PRODUCE_VERSION)

    async def produce(self, topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> int:
        """The offset of its first record."""
        return await acknowledged(self.send_batch(topic, partition, batch, transactional_id=transactional_id))

    async def fetch(
        self, topic: str, partition: int, offset: int, *, wait_ms: int = 200, isolation: int = 0
    ) -> PartitionData:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 18)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 18,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        found = (await self.call(request, FETCH_VERSION, FetchResponse)).responses[0].partitions[0]
        _check("Fetch", found.error_code)
        return found

    async def offset_at(self, topic: str, partition: int, timestamp: int, *, isolation: int = 0) -> int:
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])
        answer = await self.call(ListOffsetsRequest(-1, isolation, [wanted]), 4, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        _check("ListOffsets", found.error_code)
        return found.offset

    async def read_all(self, topic: str, partition: int, *, isolation: int = 0) -> list[Record]:
        """Every record that the log has now, control records and what was aborted left out where that is asked for."""
        offset = await self.offset_at(topic, partition, EARLIEST)
        end = await self.offset_at(topic, partition, LATEST, isolation=isolation)
        records: list[Record] = []
        while offset < end:
            page = Page(await self.fetch(topic, partition, offset, isolation=isolation), offset)
            if page.following == offset:
                raise Refused(f"nothing at {offset} of {topic}-{partition}, whose end is {end}", 0)
            records += page.records
            offset = page.following
        return records

    # -- transactions --------------------------------------------------------------------------------------------

    async def add_partitions(self, name: str, producer: Producer, topic: str, partitions: list[int]) -> None:
        topics = [AddPartitionsToTxnTopic(topic, partitions)]
        request = AddPartitionsToTxnRequest(name, producer.id, producer.epoch, topics)
        answer = await self.call(request, 3, AddPartitionsToTxnResponse)
        for each in answer.results_by_topic[0].results_by_partition:
            _check("AddPartitionsToTxn", each.partition_error_code)

    async def add_offsets(self, name: str, producer: Producer, group: str) -> None:
        added = AddOffsetsToTxnRequest(name, producer.id, producer.epoch, group)
        _check("AddOffsetsToTxn", (await self.call(added, 3, AddOffsetsToTxnResponse)).error_code)

    async def commit_offsets(self, name: str, producer: Producer, group: str, topic: str, offset: int) -> None:
        partitions = [TxnOffsetCommitRequestPartition(0, offset, committed_metadata="")]
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, partitions)],
        )
        answer = await self.call(request, 3, TxnOffsetCommitResponse)
        _check("TxnOffsetCommit", answer.topics[0].partitions[0].error_code)

    async def end_transaction(self, name: str, producer: Producer, *, is_commit: bool) -> None:
        request = EndTxnRequest(name, producer.id, producer.epoch, is_commit)
        _check("EndTxn", (await self.call(request, 3, EndTxnResponse)).error_code)

    # -- groups --------------------------------------------------------------------------------------------------

    async def join(self, group: str, member_id: str, *, session_ms: int) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"metadata")],
        )
        answer = await self.call(request, 5, JoinGroupResponse)
        if answer.error_code == MEMBER_ID_REQUIRED:
            return await self.join(group, answer.member_id, session_ms=session_ms)
        _check("JoinGroup", answer.error_code)
        return answer

    async def sync(self, group: str, joined: JoinGroupResponse, shares: Mapping[str, bytes]) -> bytes:
        """This member's share."""
        assignments = [SyncGroupRequestAssignment(*each) for each in shares.items()]
        request = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignments)
        answer = await self.call(request, 3, SyncGroupResponse)
        _check("SyncGroup", answer.error_code)
        return answer.assignment

    async def heartbeat(self, group: str, joined: JoinGroupResponse) -> None:
        request = HeartbeatRequest(group, joined.generation_id, joined.member_id)
        _check("Heartbeat", (await self.call(request, 3, HeartbeatResponse)).error_code)

    async def commit(
        self, group: str, topic: str, partition: int, offset: int, joined: JoinGroupResponse | None = None
    ) -> None:
        partitions = [OffsetCommitRequestPartition(partition, offset, committed_metadata="")]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1 if joined is None else joined.generation_id,
            member_id="" if joined is None else joined.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        answer = await self.call(request, 7, OffsetCommitResponse)
        _check("OffsetCommit", answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str, topic: str, partition: int) -> int:
        """-1 when nothing is."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
        found = (await self.call(request, 8, OffsetFetchResponse)).groups[0]
        _check("OffsetFetch", found.error_code)
        _check("OffsetFetch", found.topics[0].partitions[0].error_code)
        return found.topics[0].partitions[0].committed_offset


class Page:
    """What one fetch has brought: its records, and where the next one begins."""

    def __init__(self, found: PartitionData, offset: int) -> None:
        self.following = offset
        self.records: list[Record] = []
        self.has_bad_crc = False
        aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        in_abort: set[int] = set()
        for header, batch in iterate_batches(found.records or b""):
            self.has_bad_crc |= not has_valid_crc(batch)
            while aborted and aborted[0][0] <= header.base_offset + header.last_offset_delta:
                in_abort.add(aborted.pop(0)[1])
            self.following = max(self.following, header.end_offset)
            if header.is_control:
                in_abort.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in in_abort:
                self.records += [each for each in read_batch_records(batch, header) if each.offset >= offset]


async def answered(waiter: "asyncio.Future[memoryview]", version: int, kind: type[Response]) -> Response:
    async with asyncio.timeout(TIMEOUT_S):
        data = await waiter
    _, at = read_response_header(data, kind.API_KEY, version)
    return kind.decode(data, version, at)


async def acknowledged(waiter: "asyncio.Future[memoryview]") -> int:
    """The offset that a batch was given."""
    answer = await answered(waiter, _PRODUCE_VERSION, ProduceResponse)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    _check("Produce", found.error_code)
    return found.base_offset


def batch_of(
    values: Sequence[bytes],
    *,
    now_ms: int,
    producer: Producer | None = None,
    sequence: int = -1,
    in_transaction: bool = False,
) -> bytes:
    records = [NewRecord(value=value) for value in values]
    if producer is None:
        return bytes(build_batch(records, now_ms=now_ms))
    return bytes(
        build_batch(
            records,
            now_ms=now_ms,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=in_transaction,
        )
    )


def _check(what: str, code: int, *allowed: int) -> None:
    if code and code not in allowed:
        raise Refused(what, code)
