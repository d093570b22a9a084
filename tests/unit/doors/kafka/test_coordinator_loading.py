"""What clients hear while the coordinators load: what Apache Kafka's brokers say then, in every version of a request."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.support.coordinator_bench import CoordinatorBench
from tests.support.raw_groups import join_request

from headrace.chance import SYSTEM_CHANCE
from headrace.doors.kafka.handlers.produce import refused
from headrace.doors.kafka.routes import ROUTES, Route
from headrace.errors import CoordinatorLoading
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_response, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest
from headrace.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
TOPIC_ID = b"t".ljust(16)

ANSWERS: list[tuple[Message, ErrorCode]] = [
    (join_request("g"), LOADING),
    (SyncGroupRequest(group_id="g", member_id="m", generation_id=1), ErrorCode.REBALANCE_IN_PROGRESS),
    (HeartbeatRequest(group_id="g", member_id="m", generation_id=1), ErrorCode.NONE),
    (LeaveGroupRequest(group_id="g", member_id="m", members=[MemberIdentity("m")]), LOADING),
    (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"]), LOADING),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[OffsetCommitRequestPartition(0, 5)])
            ],
        ),
        LOADING,
    ),
    (
        OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic("t", [0])], groups=[OffsetFetchRequestGroup("g")]
        ),
        LOADING,
    ),
    (OffsetDeleteRequest(group_id="g"), LOADING),
    (DeleteGroupsRequest(groups_names=["g"]), LOADING),
    (DescribeGroupsRequest(groups=["g"]), LOADING),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), LOADING),
    (ListGroupsRequest(), LOADING),
    (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), LOADING),
    (
        AddPartitionsToTxnRequest(
            "x",
            1,
            0,
            [AddPartitionsToTxnTopic("t", [0])],
            [
                AddPartitionsToTxnTransaction("x", 1, 0, is_verifying, [AddPartitionsToTxnTopic("t", [0])])
                for is_verifying in (False, True)
            ],
        ),
        LOADING,
    ),
    (AddOffsetsToTxnRequest("x", 1, 0, "g"), LOADING),
    (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])],
        ),
        LOADING,
    ),
    (EndTxnRequest("x", 1, 0, True), LOADING),
    (DescribeTransactionsRequest(transactional_ids=["x"]), LOADING),
    (ListTransactionsRequest(), LOADING),
]


@pytest.mark.parametrize(("request_", "expected"), ANSWERS, ids=[type(request).__name__ for request, _ in ANSWERS])
async def test_a_client_is_told_to_wait(request_: Message, expected: ErrorCode) -> None:
    session = loading_session()
    route = ROUTES[request_.API_KEY]
    assert isinstance(route, Route)
    for version in range(route.versions[0], route.versions[1] + 1):
        answer = route.handle(request_, version, session)
        if inspect.isawaitable(answer):
            answer = await answer
        assert isinstance(answer, Message)
        frame = encode_response(answer, version, 1)
        _, at = read_response_header(memoryview(frame), request_.API_KEY, version, 4)
        told = set(codes(type(answer).decode(frame, version, at)))
        assert expected in told <= {expected, ErrorCode.NONE}, f"v{version}"


async def test_a_transactional_producer_is_told_to_send_again() -> None:
    told = refused(0, CoordinatorLoading("still being read"), 11)
    assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def loading_session() -> Any:  # Any: as much of a session as these handlers look at
    bench = CoordinatorBench(is_loaded=False)
    topics = cast(Any, bench.topics)
    topics.find_by_id = lambda topic_id: bench.topics.find("t")
    broker = SimpleNamespace(
        chance=SYSTEM_CHANCE,
        groups=bench.groups,
        offsets=bench.offsets,
        transactions=bench.transactions,
        participation=bench.participation,
        topics=topics,
        clock=bench.clock,
    )
    guard = SimpleNamespace(is_on=False)
    return SimpleNamespace(broker=broker, client_id="c", peer="127.0.0.1:1", guard=guard)


def codes(answer: object) -> Iterator[int]:
    """Every error code in a response, however deep."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes(each)
    elif isinstance(answer, msgspec.Struct):
        for field in answer.__struct_fields__:
            value = getattr(answer, field)
            yield from (value,) if field.endswith("error_code") else codes(value)
