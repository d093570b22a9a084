"""A batch whose content is not what its header says: told apart from a node that is slow or has nothing new.

The log keeps compressed batches as they came. Kafka's C client, at one that it cannot unpack, says nothing and asks for
it again for ever; Java's and kafka-python raise. So when a reader hears nothing, the batch it waits for is looked at.
"""

from typing import Final

from headrace.clients.kafka import KafkaRequests
from headrace.errors import CorruptBatch
from headrace.records.batch import BatchHeader, iterate_batches
from headrace.records.record import read_batch_records
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse

_FETCH_VERSION: Final = 12
_FETCH_BYTES: Final = 1 << 20
"""The first batch comes whole, whatever its size."""


def require_readable(bootstrap: str, *, topic: str, partition: int, offset: int, is_committed_only: bool) -> None:
    """`CorruptBatch`, naming its place and where to go on, if the records at `offset` cannot be read."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        max_bytes=_FETCH_BYTES,
        isolation_level=int(is_committed_only),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    with KafkaRequests(bootstrap.partition(",")[0]) as node:
        answer = node.call(request, _FETCH_VERSION, FetchResponse)
    # An error of the partition, and having no records to give, are the client's to deal with.
    for header, batch in iterate_batches(answer.responses[0].partitions[0].records or b""):
        if header.end_offset > offset:
            try:
                list(read_batch_records(batch, header))
            except CorruptBatch as error:
                raise _unreadable(topic, partition, header, error) from error
            return


def _unreadable(topic: str, partition: int, header: BatchHeader, error: CorruptBatch) -> CorruptBatch:
    return CorruptBatch(
        f"{topic} partition {partition}: the batch of offsets {header.base_offset} to {header.end_offset - 1} does not "
        f"hold what its header says ({error}); what follows begins at offset {header.end_offset}"
    )
