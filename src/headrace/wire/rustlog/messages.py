"""RustLog's requests and responses, one struct each; the field names are the JSON's.

`type` is msgspec's tag, so a payload chooses its struct while it is parsed. `bytes` fields travel as standard
Base64. Unknown fields are ignored: that is how the protocol grows. Integers are unsigned; msgspec cannot
express 2**64 - 1 as a bound, so `codec.decode_request` looks at 64-bit fields itself.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

U16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Meta(ge=0)]


class Message(Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """What all messages share: the tag. `gc=False` because none of them can hold a cycle."""


# Requests


class Produce(Message, tag="Produce", frozen=True, kw_only=True, gc=False):
    topic: str
    partition: U32
    records: list[bytes]


class Fetch(Message, tag="Fetch", frozen=True, kw_only=True, gc=False):
    group_id: str
    topic: str
    partition: U32
    offset: U64
    max_bytes: U64


class OffsetCommit(Message, tag="OffsetCommit", frozen=True, kw_only=True, gc=False):
    group: str
    topic: str
    partition: U32
    offset: U64


class OffsetFetch(Message, tag="OffsetFetch", frozen=True, kw_only=True, gc=False):
    group: str
    topic: str
    partition: U32


class CreateTopic(Message, tag="CreateTopic", frozen=True, kw_only=True, gc=False):
    topic: str
    partition_count: U32


class ListTopics(Message, tag="ListTopics", frozen=True, kw_only=True, gc=False):
    pass


class DescribeTopic(Message, tag="DescribeTopic", frozen=True, kw_only=True, gc=False):
    topic: str


class DescribePartition(Message, tag="DescribePartition", frozen=True, kw_only=True, gc=False):
    topic: str
    partition: U32


class MetricsFetch(Message, tag="MetricsFetch", frozen=True, kw_only=True, gc=False):
    pass


class Ping(Message, tag="Ping", frozen=True, kw_only=True, gc=False):
    pass


Request = (
    Produce
    | Fetch
    | OffsetCommit
    | OffsetFetch
    | CreateTopic
    | ListTopics
    | DescribeTopic
    | DescribePartition
    | MetricsFetch
    | Ping
)

# Responses


class ProduceResponse(Message, tag="ProduceResponse", frozen=True, kw_only=True, gc=False):
    base_offset: U64
    record_count: U64


class FetchedRecord(Struct, frozen=True, kw_only=True, gc=False):
    offset: U64
    timestamp: U64
    """Microseconds since 1970, UTC."""
    payload: bytes


class FetchResponse(Message, tag="FetchResponse", frozen=True, kw_only=True, gc=False):
    records: list[FetchedRecord]
    next_offset: U64


class OffsetCommitResponse(Message, tag="OffsetCommitResponse", frozen=True, kw_only=True, gc=False):
    success: bool


class OffsetFetchResponse(Message, tag="OffsetFetchResponse", frozen=True, kw_only=True, gc=False):
    offset: U64 | None


class CreateTopicResponse(Message, tag="CreateTopicResponse", frozen=True, kw_only=True, gc=False):
    success: bool
    partitions_created: U32


class TopicSummary(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    partition_count: U32


class ListTopicsResponse(Message, tag="ListTopicsResponse", frozen=True, kw_only=True, gc=False):
    topics: list[TopicSummary]


class PartitionDescription(Struct, frozen=True, kw_only=True, gc=False):
    partition: U32
    high_watermark: U64
    log_start_offset: U64
    segment_count: U64


class DescribeTopicResponse(Message, tag="DescribeTopicResponse", frozen=True, kw_only=True, gc=False):
    topic: str
    partitions: list[PartitionDescription]


class DescribePartitionResponse(Message, tag="DescribePartitionResponse", frozen=True, kw_only=True, gc=False):
    """The seed names this response and leaves its shape open; C10 settles it."""

    topic: str
    partition: U32
    high_watermark: U64
    log_start_offset: U64
    segment_count: U64


class ConsumerLag(Struct, frozen=True, kw_only=True, gc=False):
    group: str
    topic: str
    partition: U32
    lag: U64


class MetricsFetchResponse(Message, tag="MetricsFetchResponse", frozen=True, kw_only=True, gc=False):
    """Shape by C10: the same figures as numbers, as lags, and as one Prometheus text."""

    metrics: dict[str, float]
    consumer_lag: list[ConsumerLag]
    text: str


class Pong(Message, tag="Pong", frozen=True, kw_only=True, gc=False):
    pass


class Error(Message, tag="Error", frozen=True, kw_only=True, gc=False):
    code: U16
    message: str
    # Any: the shape of the details depends on the code, and old clients must accept new shapes.
    details: dict[str, Any] | None = None


Response = (
    ProduceResponse
    | FetchResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | CreateTopicResponse
    | ListTopicsResponse
    | DescribeTopicResponse
    | DescribePartitionResponse
    | MetricsFetchResponse
    | Pong
    | Error
)
