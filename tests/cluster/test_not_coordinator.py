"""Every request for a group or a transaction that another broker looks after is answered so that clients look for that one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.delete_groups_response import DeleteGroupsResponse
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_groups_response import DescribeGroupsResponse
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.kafka.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.messages.offset_delete_response import OffsetDeleteResponse
from headrace.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest
from headrace.wire.kafka.messages.sync_group_response import SyncGroupResponse
from headrace.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.txn_offset_commit_response import TxnOffsetCommitResponse

Asked = tuple[Message, int, type[Message]]


def of_group(name: str) -> list[Asked]:
    offsets = [OffsetCommitRequestTopic("orders", bytes(16), [OffsetCommitRequestPartition(0, 1)])]
    deleted = [OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])]
    txn_offsets = [TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(0, 1)])]
    join = JoinGroupRequest(
        name, 10_000, 10_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
    )
    return [
        (join, 3, JoinGroupResponse),
        (SyncGroupRequest(name, 1, "m"), 3, SyncGroupResponse),
        (HeartbeatRequest(name, 1, "m"), 3, HeartbeatResponse),
        (LeaveGroupRequest(name, members=[MemberIdentity("m")]), 3, LeaveGroupResponse),
        (OffsetCommitRequest(name, topics=offsets), 7, OffsetCommitResponse),
        (OffsetFetchRequest(name, [OffsetFetchRequestTopic("orders", [0])]), 1, OffsetFetchResponse),
        (OffsetFetchRequest(name, None), 5, OffsetFetchResponse),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name)]), 8, OffsetFetchResponse),
        (OffsetDeleteRequest(name, deleted), 0, OffsetDeleteResponse),
        (DescribeGroupsRequest([name]), 5, DescribeGroupsResponse),
        (DeleteGroupsRequest([name]), 1, DeleteGroupsResponse),
        (ConsumerGroupHeartbeatRequest(name, "m", 1), 0, ConsumerGroupHeartbeatResponse),
        (ConsumerGroupDescribeRequest([name]), 0, ConsumerGroupDescribeResponse),
        (TxnOffsetCommitRequest("t", name, 1, 0, topics=txn_offsets), 3, TxnOffsetCommitResponse),
    ]


def of_transaction(name: str) -> list[Asked]:
    topics = [AddPartitionsToTxnTopic("orders", [0])]
    several = AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(name, 1, 0, False, topics)])
    return [
        (InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse),
        (AddPartitionsToTxnRequest(name, 1, 0, topics), 3, AddPartitionsToTxnResponse),
        (several, 4, AddPartitionsToTxnResponse),
        (AddOffsetsToTxnRequest(name, 1, 0, "g"), 3, AddOffsetsToTxnResponse),
        (EndTxnRequest(name, 1, 0, True), 3, EndTxnResponse),
        (DescribeTransactionsRequest([name]), 0, DescribeTransactionsResponse),
    ]


def codes_in(answer: object) -> Iterator[int]:
    """Every error that an answer has, wherever."""
    match answer:
        case dict():
            for name, value in answer.items():
                if str(name).endswith("error_code") and value:
                    yield value
                yield from codes_in(value)
        case list():
            for each in answer:
                yield from codes_in(each)


def refusals(nodes: SharedNodes, name: str, asked: list[Asked]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    with RawKafka(nodes.members[name].address) as client:
        for request, version, response in asked:
            answer = client.call(request, version, response)
            found[f"{type(request).__name__} v{version}"] = {*codes_in(msgspec.to_builtins(answer))}
    return found


async def test_clients_are_sent_to_the_coordinator_whatever_they_ask(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b"]) as nodes:
        await nodes.members["a"].broker.topics.create("orders", partitions=1)
        words = [f"of-{number}" for number in range(8)]
        for name, other in (("a", "b"), ("b", "a")):
            broker = nodes.members[name].broker
            groups = {await broker.groups.leader_of(word): word for word in words}
            transactions = {await broker.transactions.leader_of(word): word for word in words}
            asked = of_group(groups[other]) + of_transaction(transactions[other])
            for what, codes in (await asyncio.to_thread(refusals, nodes, name, asked)).items():
                assert codes == {ErrorCode.NOT_COORDINATOR}, what
