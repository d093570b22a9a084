"""Group and transaction requests on a bare Kafka connection, one function per request, Kafka's own field names."""

from collections.abc import Iterable, Mapping

from tests.support.node import eventually
from tests.support.raw_kafka import Producer, RawKafka

from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse, PartitionData
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListGroupsResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.kafka.messages.sync_group_response import SyncGroupResponse
from headrace.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.txn_offset_commit_response import TxnOffsetCommitResponse

READ_COMMITTED = 1


def wait_until_loaded(client: RawKafka) -> None:
    """A node that is slow to start serves before its coordinators have read their past, and tells clients to wait."""

    def is_loaded() -> bool:
        groups = client.call(ListGroupsRequest(), 4, ListGroupsResponse).error_code
        transactions = client.call(ListTransactionsRequest(), 0, ListTransactionsResponse).error_code
        return groups == transactions == 0

    eventually(is_loaded, 60, "the coordinators did not load")


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_timeout_ms: int = 120_000,
    rebalance_timeout_ms: int = 120_000,
    protocol_type: str = "consumer",
    protocols: Iterable[str] = ("range",),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name, b"metadata") for name in protocols],
    )


def join(client: RawKafka, group: str, member_id: str = "", *, version: int = 5) -> JoinGroupResponse:
    """Join, coming back with the member id where the version asks for it."""
    answer = client.call(join_request(group, member_id), version, JoinGroupResponse)
    if answer.error_code == 79:
        answer = client.call(join_request(group, answer.member_id), version, JoinGroupResponse)
    return answer


def sync(
    client: RawKafka,
    group: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    version: int = 3,
) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(name, share) for name, share in (assignments or {}).items()],
    )
    return client.call(request, version, SyncGroupResponse)


def commit(
    client: RawKafka,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = "note",
    version: int = 7,
) -> dict[int, int]:
    """Error code by partition."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    answer = client.call(request, version, OffsetCommitResponse)
    return {each.partition_index: each.error_code for each in answer.topics[0].partitions}


def committed(
    client: RawKafka, group: str, topic: str, partition: int = 0, *, require_stable: bool = False
) -> tuple[int, int]:
    """Offset and error code."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])])
        ],
        require_stable=require_stable,
    )
    found = client.call(request, 8, OffsetFetchResponse).groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


def committed_legacy(client: RawKafka, group: str, topic: str, partition: int, version: int) -> int:
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(topic, [partition])])
    return client.call(request, version, OffsetFetchResponse).topics[0].partitions[0].committed_offset


def init_transactions(
    client: RawKafka,
    transactional_id: str,
    *,
    timeout_ms: int = 60_000,
    expected: Producer | None = None,
    version: int = 4,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if expected is None else expected.id,
        producer_epoch=-1 if expected is None else expected.epoch,
    )
    return client.call(request, version, InitProducerIdResponse)


def add_partitions(
    client: RawKafka, transactional_id: str, producer: Producer, topic: str, partitions: list[int], *, version: int = 3
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        transactional_id, producer.id, producer.epoch, [AddPartitionsToTxnTopic(topic, partitions)]
    )
    answer = client.call(request, version, AddPartitionsToTxnResponse)
    return [each.partition_error_code for each in answer.results_by_topic[0].results_by_partition]


def add_offsets(client: RawKafka, transactional_id: str, producer: Producer, group: str) -> int:
    request = AddOffsetsToTxnRequest(transactional_id, producer.id, producer.epoch, group)
    return client.call(request, 3, AddOffsetsToTxnResponse).error_code


def commit_in_transaction(
    client: RawKafka,
    transactional_id: str,
    producer: Producer,
    group: str,
    topic: str,
    offset: int,
    *,
    metadata: str = "",
    version: int = 3,
) -> int:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(topic, partitions)],
    )
    return client.call(request, version, TxnOffsetCommitResponse).topics[0].partitions[0].error_code


def end(client: RawKafka, transactional_id: str, producer: Producer, *, is_commit: bool, version: int = 3) -> int:
    request = EndTxnRequest(transactional_id, producer.id, producer.epoch, is_commit)
    return client.call(request, version, EndTxnResponse).error_code


def transactional_batch(values: Iterable[bytes], producer: Producer, sequence: int, *, now_ms: int) -> bytearray:
    return build_batch(
        [NewRecord(value=value) for value in values],
        now_ms=now_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def fetch_committed(client: RawKafka, topic: str, partition: int = 0, offset: int = 0) -> PartitionData:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )
    return client.call(request, 12, FetchResponse).responses[0].partitions[0]
