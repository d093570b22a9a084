"""A Kafka client on a bare socket, for tests that must say exactly which bytes go out, and when.

Built on `headrace.wire.kafka`, which has oracles of its own. Blocking, one connection, nothing retried: what a client
library would hide (a lost answer, a closed connection) is raised here.
"""

import gzip
import itertools
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from crc32c import crc32c

from headrace.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    Codec,
    has_valid_crc,
    iterate_batches,
    read_header,
)
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_records
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse, PartitionData
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse

PRODUCE_VERSION = 9
FETCH_VERSION = 12
EARLIEST, LATEST = -2, -1
TOPIC_ALREADY_EXISTS = 36

Response = TypeVar("Response", bound=Message)


class Closed(Exception):
    """The other side ended the connection, or never let us in."""


class Producer:
    """Who an idempotent producer says it is."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.id = producer_id
        self.epoch = epoch


class RawKafka:
    def __init__(self, address: str, *, timeout: float = 30.0, receive_buffer: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._correlation_ids = itertools.count(1)
        self._received = bytearray()
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.socket.connect((host, int(port)))
        except OSError as error:
            self.socket.close()
            raise Closed(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- bytes ---------------------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def read_frame(self) -> bytes:
        """The next response, without its size. A timeout is the socket's own `TimeoutError`."""
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                data = self.socket.recv(1 << 18)
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed("end of stream")
            self._received += data
        found = bytes(self._received[:size])
        del self._received[:size]
        return found

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the stream, whatever comes before it; False when it does not come in time."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    # -- requests ------------------------------------------------------------------------------------------------

    def send_request(self, request: Message, version: int) -> int:
        correlation_id = next(self._correlation_ids)
        self.send(encode_request(request, version, correlation_id, "raw"))
        return correlation_id

    def read_response(self, kind: type[Response], version: int, correlation_id: int) -> Response:
        data = memoryview(self.read_frame())
        found, at = read_response_header(data, kind.API_KEY, version)
        assert found == correlation_id, f"answer {found} where {correlation_id} was due"
        return kind.decode(data, version, at)

    def call(self, request: Message, version: int, kind: type[Response]) -> Response:
        return self.read_response(kind, version, self.send_request(request, version))

    def api_versions(self) -> ApiVersionsResponse:
        return self.call(ApiVersionsRequest(), 0, ApiVersionsResponse)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        topic = CreatableTopic(
            name, partitions, 1, [], [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
        )
        result = self.call(CreateTopicsRequest([topic]), 5, CreateTopicsResponse).topics[0]
        assert result.error_code in (0, TOPIC_ALREADY_EXISTS), (result.error_code, result.error_message)

    def init_producer(self) -> Producer:
        found = self.call(InitProducerIdRequest(None, 60_000), 4, InitProducerIdResponse)
        assert found.error_code == 0, found
        return Producer(found.producer_id, found.producer_epoch)

    def produce(
        self, topic: str, partition: int, batch: bytes | bytearray, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> PartitionProduceResponse:
        return self.read_produced(self.send_produce(topic, partition, batch, acks=acks, timeout_ms=timeout_ms))

    def send_produce(
        self, topic: str, partition: int, batch: bytes | bytearray, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> int:
        return self.send_request(produce_request(topic, partition, batch, acks=acks, timeout_ms=timeout_ms), 9)

    def read_produced(self, correlation_id: int) -> PartitionProduceResponse:
        answer = self.read_response(ProduceResponse, PRODUCE_VERSION, correlation_id)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, max_bytes: int = 1 << 20
    ) -> PartitionData:
        correlation_id = self.send_fetch(topic, partition, offset, wait_ms=wait_ms, max_bytes=max_bytes)
        return self.read_response(FetchResponse, FETCH_VERSION, correlation_id).responses[0].partitions[0]

    def send_fetch(
        self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, max_bytes: int = 1 << 20, min_bytes: int = 1
    ) -> int:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return self.send_request(request, FETCH_VERSION)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])
        found = self.call(ListOffsetsRequest(-1, 0, [wanted]), 4, ListOffsetsResponse).topics[0].partitions[0]
        assert found.error_code == 0, found
        return found.offset

    def read_all(self, topic: str, partition: int, *, may_miss: bool = False) -> list[Record]:
        """Every record from the log's start to its end, as they come. CRCs are checked.

        With `may_miss` a batch may be empty: it spans offsets whose records are lost, and is passed over.
        """
        offset = self.offset_at(topic, partition, EARLIEST)
        end = self.offset_at(topic, partition, LATEST)
        records: list[Record] = []
        while offset < end:
            found = self.fetch(topic, partition, offset, max_bytes=4 << 20, wait_ms=100)
            assert found.error_code == 0, f"broken promises: {topic}-{partition} at {offset}: error {found.error_code}"
            following = offset
            for header, batch in iterate_batches(found.records or b""):
                assert has_valid_crc(batch), f"broken promises: {topic}-{partition} at {offset}: a batch with a bad CRC"
                following = header.end_offset
            page = [record for record in read_records(found.records or b"") if record.offset >= offset]
            is_something = following > offset if may_miss else bool(page)
            assert is_something, f"broken promises: {topic}-{partition}: nothing at {offset} though the end is {end}"
            records += page
            offset = following
        return records


def produce_request(
    topic: str,
    partition: int,
    batch: bytes | bytearray,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    topic_id: bytes = bytes(16),
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id,
        acks,
        timeout_ms,
        [TopicProduceData(topic, topic_id, [PartitionProduceData(partition, bytes(batch))])],
    )


def batch_of(values: Sequence[bytes], *, producer: Producer | None = None, sequence: int = -1) -> bytearray:
    records = [NewRecord(value=value) for value in values]
    now_ms = time.time_ns() // 1_000_000
    if producer is None:
        return build_batch(records, now_ms=now_ms)
    return build_batch(
        records, now_ms=now_ms, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=sequence
    )


def lying_batch(content: bytes | None, *, claimed_count: int, packed: bytes | None = None) -> bytearray:
    """Two records, or other content, compressed in a batch that claims to hold more. Its header is right by itself."""
    plain = batch_of([b"one", b"two"])
    if packed is None:
        packed = gzip.compress(bytes(plain[HEADER_SIZE:]) if content is None else content)
    header = read_header(plain)._replace(
        batch_length=HEADER_SIZE + len(packed) - LENGTH_OVERHEAD,
        attributes=Codec.GZIP,
        last_offset_delta=claimed_count - 1,
        record_count=claimed_count,
    )
    checked = (HEADER.pack(*header) + packed)[CRC_START:]
    return bytearray(HEADER.pack(*header._replace(crc=crc32c(checked))) + packed)
