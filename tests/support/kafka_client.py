"""Data requests on a bare Kafka connection in any version: one function per request, what a test does not care about
has a default."""

import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.headers import read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.kafka.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.kafka.messages.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderEpochResponse
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse

FETCH_VERSION = 12
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)

Response = TypeVar("Response", bound=Message)


class Wanted(msgspec.Struct, frozen=True):
    """One partition of a fetch; `topic` is a name, or an id from v13 on."""

    topic: str | bytes
    offset: int = 0
    partition: int = 0
    bytes_max: int = 1 << 20
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


def fetch_request(
    *wanted: Wanted,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation: int = 0,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Mapping[str | bytes, list[int]] | None = None,
) -> FetchRequest:
    topics: dict[str | bytes, FetchTopic] = {}
    for row in wanted:
        topic = topics.setdefault(row.topic, _fetch_topic(row.topic))
        topic.partitions.append(
            FetchPartition(
                partition=row.partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                last_fetched_epoch=row.last_fetched_epoch,
                partition_max_bytes=row.bytes_max,
            )
        )
    gone = [
        ForgottenTopic(topic_id=topic, partitions=indexes)
        if isinstance(topic, bytes)
        else ForgottenTopic(topic=topic, partitions=indexes)
        for topic, indexes in (forgotten or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics.values()),
        forgotten_topics_data=gone,
    )


def _fetch_topic(topic: str | bytes) -> FetchTopic:
    return FetchTopic(topic_id=topic) if isinstance(topic, bytes) else FetchTopic(topic=topic)


def fetch(client: RawKafka, *wanted: Wanted, version: int = FETCH_VERSION, **options: object) -> FetchResponse:
    return client.call(fetch_request(*wanted, **options), version, FetchResponse)  # type: ignore[arg-type]


PRODUCE_BY_ID_FROM = 13


def produce(
    client: RawKafka,
    entries: Mapping[str, Mapping[int, bytes | bytearray | None]],
    *,
    version: int = 9,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> dict[tuple[str, int], PartitionProduceResponse]:
    ids = {name: topic_id(client, name) if version >= PRODUCE_BY_ID_FROM else bytes(16) for name in entries}
    topics = [
        TopicProduceData(
            name, ids[name], [PartitionProduceData(index, batch and bytes(batch)) for index, batch in rows.items()]
        )
        for name, rows in entries.items()
    ]
    answer = client.call(ProduceRequest(None, acks, timeout_ms, topics), version, ProduceResponse)
    names = {found: name for name, found in ids.items()}
    return {
        (names[topic.topic_id] if version >= PRODUCE_BY_ID_FROM else topic.name, row.index): row
        for topic in answer.responses
        for row in topic.partition_responses
    }


def produce_one(
    client: RawKafka, topic: str, batch: bytes | bytearray | None, *, version: int = 9, acks: int = -1
) -> PartitionProduceResponse:
    return produce(client, {topic: {0: batch}}, version=version, acks=acks)[(topic, 0)]


def metadata(
    client: RawKafka,
    names: Sequence[str] | None,
    *,
    ids: Sequence[bytes] = (),
    version: int = 12,
    auto_create: bool = False,
) -> MetadataResponse:
    topics = None
    if names is not None:
        topics = [MetadataRequestTopic(name=name) for name in names]
        topics += [MetadataRequestTopic(topic_id, None) for topic_id in ids]
    return client.call(MetadataRequest(topics, auto_create), version, MetadataResponse)


def described(client: RawKafka, name: str) -> MetadataResponseTopic:
    return metadata(client, [name]).topics[0]


def topic_id(client: RawKafka, name: str) -> bytes:
    return described(client, name).topic_id


def leader_epoch(client: RawKafka, name: str) -> int:
    return described(client, name).partitions[0].leader_epoch


def delete_topic(client: RawKafka, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name)], topic_names=[name], timeout_ms=10_000)
    return client.call(request, 6, DeleteTopicsResponse).responses[0].error_code


def list_offsets(
    client: RawKafka,
    topic: str,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = 9,
    isolation: int = 0,
    epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, epoch, timestamp)])
    answer = client.call(ListOffsetsRequest(-1, isolation, [wanted]), version, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


def epoch_end(client: RawKafka, topic: str, epoch: int, *, current: int = -1, version: int = 4) -> EpochEndOffset:
    wanted = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])
    request = OffsetForLeaderEpochRequest(-1, [wanted])
    return client.call(request, version, OffsetForLeaderEpochResponse).topics[0].partitions[0]


def hand_made(key: int, version: int, correlation_id: int, rest: bytes) -> bytes:
    """A request frame whose bytes behind the correlation id are all the test's own."""
    body = struct.pack(">hhi", key, version, correlation_id) + rest
    return struct.pack(">i", len(body)) + body


def call_to_the_last_byte(client: RawKafka, request: Message, version: int, kind: type[Response]) -> Response:
    """The answer, having made sure that the version's layout is all there is in its frame."""
    client.send_request(request, version)
    frame = memoryview(client.read_frame())
    _, at = read_response_header(frame, kind.API_KEY, version)
    answer, end = kind.read(frame, at, version)
    assert end == len(frame), f"{len(frame) - end} bytes behind a v{version} answer"
    return answer
