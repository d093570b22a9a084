"""Records of a topic, fetched and taken apart here rather than by Kafka's C client.

The log keeps compressed batches as they came. At one that does not hold what its header says the C client asks for it again
and again and says nothing; at one that unpacks to nothing it ends the process. Here both are named.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headrace.clients.kafka import KafkaRequests
from headrace.errors import CorruptBatch, Unavailable
from headrace.records.batch import BatchHeader, Buffer, iterate_batches
from headrace.records.builder import is_commit_marker
from headrace.records.record import Record, read_batch_records
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import AbortedTransaction, FetchResponse, PartitionData

_VERSION: Final = 12
"""The newest that names topics."""
_BYTES_MAX: Final = 8 << 20
_PARTITION_BYTES_MAX: Final = 1 << 20
"""The first batch comes whole, whatever its size."""


class TopicFetcher:
    """Asks the leaders of a topic's partitions, over one connection each."""

    def __init__(self, topic: str, *, is_committed_only: bool) -> None:
        self._topic = topic
        self._is_committed_only = is_committed_only
        self._connections: dict[str, KafkaRequests] = {}

    def fetch(self, leaders: Mapping[int, str], positions: Mapping[int, int], *, wait_ms: int) -> list[PartitionData]:
        """What follows `positions`, by partition; `leaders` are addresses."""
        wanted: dict[str, list[FetchPartition]] = {}
        for partition, position in positions.items():
            asked = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=_PARTITION_BYTES_MAX)
            wanted.setdefault(leaders[partition], []).append(asked)
        return [each for address, asked in wanted.items() for each in self._ask(address, asked, wait_ms)]

    def _ask(self, address: str, asked: list[FetchPartition], wait_ms: int) -> Iterator[PartitionData]:
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_BYTES_MAX,
            isolation_level=int(self._is_committed_only),
            topics=[FetchTopic(topic=self._topic, partitions=asked)],
        )
        try:
            if address not in self._connections:
                self._connections[address] = KafkaRequests(address)
            answer = self._connections[address].call(request, _VERSION, FetchResponse)
        except Unavailable:
            self.close()
            raise
        for topic in answer.responses:
            yield from topic.partitions

    def end_of(self, fetched: PartitionData) -> int:
        """Up to where the partition can be read at all."""
        return fetched.last_stable_offset if self._is_committed_only else fetched.high_watermark

    def records_of(self, fetched: PartitionData, position: int) -> Iterator[tuple[int, Record | None]]:
        """Where to go on behind each record, and the record; None at the end of a batch.

        `CorruptBatch`, naming its place and where to go on, at a batch that cannot be read.
        """
        aborted = _Aborted(fetched.aborted_transactions or ())
        for header, batch in iterate_batches(fetched.records or b""):
            if header.end_offset <= position:
                continue
            try:
                if not aborted.hides(header, batch):
                    for record in read_batch_records(batch, header):
                        if record.offset >= position:
                            yield record.offset + 1, record
            except CorruptBatch as error:
                raise _unreadable(self._topic, fetched.partition_index, header, error) from error
            yield header.end_offset, None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class _Aborted:
    """Which batches belong to transactions that were aborted, from the list that comes with them."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def hides(self, header: BatchHeader, batch: Buffer) -> bool:
        """Asked of every batch, in order; markers are nobody's records either."""
        while self._coming and self._coming[-1].first_offset < header.end_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.is_control:
            marker = next(read_batch_records(batch, header))
            if not is_commit_marker(marker.key or b""):
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _unreadable(topic: str, partition: int, header: BatchHeader, error: CorruptBatch) -> CorruptBatch:
    return CorruptBatch(
        f"{topic} partition {partition}: the batch of offsets {header.base_offset} to {header.end_offset - 1} does not "
        f"hold what its header says ({error}); what follows begins at offset {header.end_offset}"
    )
