"""DescribeProducers, v0: who writes to a partition, and where the open transaction of each begins (KIP-664)."""

from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.session import Session
from headrace.errors import NotFound, TopicNotFound
from headrace.wire.kafka.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.kafka.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(request: DescribeProducersRequest, version: int, session: Session) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, [_describe(topic.name, index, session) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, session: Session) -> PartitionResponse:
    try:
        partition = session.broker.topics.led_partition(topic, index)
    except NotFound as error:
        code = missing_code(topic) if isinstance(error, TopicNotFound) else code_of(error)
        return PartitionResponse(partition_index=index, error_code=code, error_message=str(error))
    producers = []
    for producer_id, producer in partition.producers.items() if partition.producers is not None else ():
        start = None
        if partition.transactions is not None:
            start = partition.transactions.first_offset(producer_id)
        producers.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1 if start is None else start,
            )
        )
    return PartitionResponse(partition_index=index, active_producers=producers)
