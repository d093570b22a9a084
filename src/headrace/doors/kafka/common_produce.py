"""Produce requests of the shape that nearly all have, served in C where it was built.

`common_produce(broker)` gives a kernel that takes frames and says which it has served, or None where there is no compiled
module (or HEADRACE_PURE=1 is set). What it declines goes through the route table: the pure twin is `handlers.produce`,
which serves every request.
"""

from typing import TYPE_CHECKING

from headrace.broker.produce import Acknowledgement, Acks
from headrace.broker.services import Broker
from headrace.broker.topics import PartitionLog, append_pointer
from headrace.clock import SystemClock
from headrace.compiled import compiled
from headrace.doors.kafka.handlers.produce import refused, told_of, too_late
from headrace.errors import HeadraceError, TransactionDenied
from headrace.records.batch import is_transactional
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import read_response_header
from headrace.wire.kafka.messages.produce_response import ProduceResponse
from headrace.wire.kafka.produce import (
    TOPIC_ID_FROM,
    ProducedPartition,
    ProducedTopic,
    encode_produced,
    encode_produced_partition,
)

if TYPE_CHECKING:
    from headrace.doors.kafka._produce import Kernel, Reply


def common_produce(broker: Broker) -> "Kernel | None":
    module = compiled("headrace.doors.kafka._produce")
    if module is None or append_pointer is None:
        return None
    twin = _Twin(broker)
    kernel: Kernel = module.Kernel(
        produce=broker.produce,
        can_take=broker.produce.can_take,
        now_ms=None if isinstance(broker.clock, SystemClock) else broker.clock.now_ms,
        append=append_pointer,
        append_carefully=twin.append_carefully,
        fail=twin.fail,
    )
    return kernel


class _Twin:
    """What the kernel leaves to Python."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def append_carefully(
        self, reply: Acknowledgement, partition: PartitionLog, index: int, batch: memoryview, now_ms: int, version: int
    ) -> bytes:
        """A batch that is not of the common kind; gives its row of the answer.

        Requests with a transactional id do not come this way: records of a transaction here are somebody else's.
        """
        try:
            if self._broker.access.is_on and is_transactional(batch):
                raise TransactionDenied("records of a transaction without its transactional id")
            appended = self._broker.produce.append(partition, batch, acks=Acks.ALL, ack=reply, now_ms=now_ms)
            row = ProducedPartition(index, 0, appended.base_offset, appended.append_time_ms, partition.log_start)
        except HeadraceError as error:
            row = refused(index, error, version)
        return encode_produced_partition(version, row)

    def fail(self, reply: "Reply", error: HeadraceError | None) -> None:
        """The answer was made when all was well; take it apart, and say what happened. Without `error` it is late."""
        error = error or too_late()
        _, at = read_response_header(memoryview(reply.answer), ApiKey.PRODUCE, reply.version, 4)
        promised = ProduceResponse.decode(memoryview(reply.answer), reply.version, at)
        topics = []
        for topic, live in zip(promised.responses, reply.topics, strict=True):
            rows = [
                ProducedPartition(
                    row.index,
                    row.error_code,
                    row.base_offset,
                    row.log_append_time_ms,
                    row.log_start_offset,
                    row.error_message,
                    [(each.batch_index, each.batch_index_error_message) for each in row.record_errors],
                )
                for row in topic.partition_responses
            ]
            named = topic.topic_id if reply.version >= TOPIC_ID_FROM else topic.name
            topics.append(ProducedTopic(named, told_of(error, live, rows)))
        reply.fill((encode_produced(reply.version, reply.correlation_id, topics),))
