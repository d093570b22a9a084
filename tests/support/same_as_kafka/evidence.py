"""What Apache Kafka says of the state that a request has met: whether a difference is the one that is documented."""

from dataclasses import dataclass
from typing import Any, Final

from tests.support.same_as_kafka.pairing import Broker, Each, Pair, Plain

from headrace.records.batch import Codec, codec_named, has_valid_crc, iterate_batches
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic

_EARLIEST: Final = -2
_UNKNOWN_TOPIC_ID: Final = 100


@dataclass(frozen=True, slots=True)
class Before:
    """Kafka's state when the request came in, where a known difference depends on it."""

    transaction: Any = None
    group: Any = None


def state_before(pair: Pair, request: Message) -> Before:
    name = type(request).__name__
    if name in ("EndTxnRequest", "TxnOffsetCommitRequest"):
        asked = DescribeTransactionsRequest([request.transactional_id])  # type: ignore[attr-defined]
        answer: Any = pair.theirs.ask(asked, 0)
        return Before(transaction=answer.transaction_states[0])
    if name == "OffsetDeleteRequest":
        answer = pair.theirs.ask(ConsumerGroupDescribeRequest([request.group_id]), 1)  # type: ignore[attr-defined]
        return Before(group=answer.groups[0])
    return Before()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A request and what can be asked about it; asked before the next request changes anything."""

    request: Any
    version: int
    before: Before
    theirs: Broker

    def topic(self, place: dict[str, Plain]) -> str:
        """The topic of a row, whichever way the row names it."""
        for key in ("name", "topic", "topic_name"):
            if place.get(key):
                return str(place[key])
        named = str(place.get("topic_id", "")).split(" ")
        return named[1] if len(named) > 1 else ""

    def log_start(self, place: dict[str, Plain]) -> int:
        row = ListOffsetsPartition(place["partition_index"], -1, _EARLIEST)
        answer: Any = self.theirs.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(self.topic(place), [row])]), 7)
        return int(answer.topics[0].partitions[0].offset)

    def is_deleted(self, place: dict[str, Plain]) -> bool:
        """Whether Kafka has no topic any more with the id of this row; so it is with an id that no run has kept."""
        for topic_id, name in self.theirs.names.items():
            if name == place.get("topic_id"):
                request = MetadataRequest([MetadataRequestTopic(topic_id=topic_id, name=None)])  # type: ignore[arg-type]
                request.allow_auto_topic_creation = False
                answer: Any = self.theirs.ask(request, 12)
                return bool(answer.topics[0].error_code == _UNKNOWN_TOPIC_ID)
        return True

    def open_transactions(self, place: dict[str, Plain]) -> set[int]:
        """Where those began that Kafka has open in this partition."""
        asked = DescribeProducersRequest([TopicRequest(self.topic(place), [place["partition_index"]])])
        answer: Any = self.theirs.ask(asked, 0)
        return {row.current_txn_start_offset for row in answer.topics[0].partitions[0].active_producers} - {-1}

    def is_marker(self, place: dict[str, Plain], offset: int) -> bool:
        """Whether Kafka has the marker of a transaction at this offset."""
        row = FetchPartition(place["partition_index"], fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(self.topic(place), partitions=[row])])
        answer: Any = self.theirs.ask(request, 11)
        for header, _ in iterate_batches(bytes(answer.responses[0].partitions[0].records or b"")):
            if header.base_offset <= offset < header.end_offset:
                return header.is_control
        return False

    def ends_with_segment(self, place: dict[str, Plain], offset: int, end: int) -> bool:
        """Whether Kafka goes from `offset` to `end` and not further, though it has more and may send it."""
        return self._fetched(place, offset)[-1:] == [end] and bool(self._fetched(place, end))

    def _fetched(self, place: dict[str, Plain], offset: int) -> list[int]:
        """Where the batches end that Kafka sends from `offset` on."""
        row = FetchPartition(place["partition_index"], fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(self.topic(place), partitions=[row])])
        request.isolation_level = self.request.isolation_level
        answer: Any = self.theirs.ask(request, 11)
        records = bytes(answer.responses[0].partitions[0].records or b"")
        return [header.end_offset for header, _ in iterate_batches(records)]

    def time_asked(self, place: dict[str, Plain]) -> int | None:
        """Which time ListOffsets asked for in this row."""
        for topic in self.request.topics:
            for row in topic.partitions:
                if (topic.name, row.partition_index) == (place.get("name"), place.get("partition_index")):
                    return int(row.timestamp)
        return None

    def batch_sent(self, place: dict[str, Plain]) -> bytes:
        """What Produce sent for this row."""
        for topic in self.request.topic_data:
            is_named = topic.name == place.get("name") or topic.name == self.topic(place)
            for row in topic.partition_data:
                if is_named and row.index == place.get("index"):
                    return bytes(row.records.theirs if isinstance(row.records, Each) else row.records or b"")
        return b""


def is_broken(batch: bytes) -> bool:
    """Whether these bytes are not one whole batch as it was sealed."""
    found = list(iterate_batches(batch)) if len(batch) > 16 and batch[16] == 2 else []
    return len(found) != 1 or len(found[0][1]) != len(batch) or not has_valid_crc(batch)


def is_transactional(batch: bytes) -> bool:
    return any(header.is_transactional for header, _ in iterate_batches(batch))


def is_packed_in_an_unknown_way(batch: bytes) -> bool:
    codec = codec_named(batch)
    return codec is not None and codec > Codec.ZSTD
