"""What `make same-as-kafka` has found: answers of Apache Kafka 4.3 to requests that are a little wrong, or rare."""

from typing import Any

import pytest
from tests.support.raw_groups import init_transactions, join, join_request, sync
from tests.support.raw_kafka import Producer, RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.kafka.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.kafka.messages.alter_client_quotas_response import AlterClientQuotasResponse
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.kafka.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.kafka.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.kafka.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_groups_response import DescribeGroupsResponse
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.kafka.messages.elect_leaders_response import ElectLeadersResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
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
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.kafka.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse


def commit(client: RawKafka, group: str, topic: str, *, version: int, note: str = "", **who: Any) -> list[int]:
    """Error codes of a commit to partition 0, and to one that is not there."""
    rows = [OffsetCommitRequestPartition(partition_index=index, committed_metadata=note) for index in (0, 9)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)])
    for name, value in who.items():
        setattr(request, name, value)
    return [row.error_code for row in client.call(request, version, OffsetCommitResponse).topics[0].partitions]


def attend(client: RawKafka, group: str, topic: str, **changes: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="member-of-this-test",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return client.call(request, 0, ConsumerGroupHeartbeatResponse)


def test_what_is_wrong_with_a_group_is_told_before_what_is_wrong_with_an_offset(
    client: RawKafka, topic: str, name: str
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stranger: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "stranger"}
    too_long = "n" * 5000
    assert commit(client, name, topic, version=7, note=too_long, **stranger) == [ErrorCode.ILLEGAL_GENERATION, unknown]
    assert commit(client, name, topic, version=9, **stranger) == [ErrorCode.GROUP_ID_NOT_FOUND, unknown]
    assert commit(client, name, topic, version=7, note=too_long) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, unknown]
    described = client.call(DescribeGroupsRequest([name]), 5, DescribeGroupsResponse).groups[0]
    assert described.group_state == "Dead", "a commit of nothing has made a group"
    assert commit(client, name, topic, version=7, member_id="stranger") == [0, unknown]


def test_a_member_of_the_new_protocol_does_not_commit_by_an_old_version(
    client: RawKafka, topic: str, name: str
) -> None:
    epoch = attend(client, name, topic).member_epoch
    who: dict[str, Any] = {"generation_id_or_member_epoch": epoch, "member_id": "member-of-this-test"}
    assert commit(client, name, topic, version=8, **who)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert commit(client, name, topic, version=9, **who)[0] == 0


def test_a_refused_heartbeat_names_nobody(client: RawKafka, topic: str, name: str) -> None:
    joined = attend(client, name, topic)
    refused = attend(client, name, topic, member_epoch=joined.member_epoch + 7)
    assert (refused.error_code, refused.member_id) == (ErrorCode.FENCED_MEMBER_EPOCH, None)
    # Only a static member comes back after a while, and only who joins has no id yet.
    assert attend(client, name, topic, member_epoch=-2).error_code == ErrorCode.INVALID_REQUEST
    assert attend(client, name, topic, member_id="", member_epoch=1).error_code == ErrorCode.INVALID_REQUEST


def test_what_is_wrong_with_joining_is_told_before_an_assignor_that_is_not_there(
    client: RawKafka, topic: str, name: str
) -> None:
    assert attend(client, name, topic, server_assignor="nope").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    joins_without: dict[str, Any] = {"server_assignor": "nope", "topic_partitions": None}
    assert attend(client, name, topic, **joins_without).error_code == ErrorCode.INVALID_REQUEST
    assert attend(client, name, topic).error_code == 0
    leaving: dict[str, Any] = {"member_epoch": -1, "subscribed_topic_names": None, "topic_partitions": None}
    refused = attend(client, name, topic, server_assignor="nope", **leaving)
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR, "whoever leaves is no exception"
    assert attend(client, name, topic, **leaving).error_code == 0


@pytest.mark.parametrize(
    ("is_removed", "code"), [(False, ErrorCode.INVALID_REQUEST), (True, ErrorCode.NONE)], ids=["set", "taken away"]
)
def test_a_quota_that_does_not_exist_can_be_taken_away_and_not_set(
    client: RawKafka, name: str, is_removed: bool, code: ErrorCode
) -> None:
    entry = EntryData([EntityData("user", name)], [OpData("nonsense", 1.0, is_removed)])
    answer = client.call(AlterClientQuotasRequest([entry]), 1, AlterClientQuotasResponse)
    assert answer.entries[0].error_code == code


def test_a_session_that_is_too_short_is_told_first(client: RawKafka, name: str) -> None:
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=1,
        rebalance_timeout_ms=1000,
        member_id="stranger",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    assert client.call(request, 5, JoinGroupResponse).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_offsets_that_cannot_be_deleted_are_told_apart(client: RawKafka, topic: str, name: str) -> None:
    commit(client, name, topic, version=7)
    rows = [OffsetDeleteRequestPartition(index) for index in (0, 9)]
    wanted = [OffsetDeleteRequestTopic(topic, rows)]
    answer = client.call(OffsetDeleteRequest(name, wanted), 0, OffsetDeleteResponse)
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    nameless = client.call(OffsetDeleteRequest("", wanted), 0, OffsetDeleteResponse)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    missing = client.call(OffsetDeleteRequest(f"{name}-missing", []), 0, OffsetDeleteResponse)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_a_name_is_not_described(client: RawKafka, name: str) -> None:
    request = ConsumerGroupDescribeRequest(["", name])
    codes = [row.error_code for row in client.call(request, 0, ConsumerGroupDescribeResponse).groups]
    assert codes == [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_config_without_a_value_makes_no_topic(client: RawKafka, name: str) -> None:
    rows = [CreatableTopic(name, 1, 1, [], [CreatableTopicConfig("flush.ms", None)])]
    answer = client.call(CreateTopicsRequest(rows, 10_000, False), 7, CreateTopicsResponse).topics[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_members_have_their_last_assignment_until_there_is_another(client: RawKafka, name: str) -> None:
    def assignment() -> bytes:
        group = client.call(DescribeGroupsRequest([name]), 5, DescribeGroupsResponse).groups[0]
        return group.members[0].member_assignment

    member = join(client, name)
    sync(client, name, member.member_id, member.generation_id, {member.member_id: b"given"})
    assert assignment() == b"given"
    assert join(client, name, member.member_id).generation_id == member.generation_id + 1
    assert assignment() == b"given"
    changed = join_request(name, member.member_id, protocols=("range", "other"))
    assert client.call(changed, 5, JoinGroupResponse).generation_id == member.generation_id + 2
    assert assignment() == b""


def test_assignments_name_topics_that_are_there(client: RawKafka, topic: str, name: str) -> None:
    """The member has not heard yet that its topic is gone; whoever looks at the group sees it."""

    def named() -> list[Any]:
        [group] = client.call(ConsumerGroupDescribeRequest([name]), 1, ConsumerGroupDescribeResponse).groups
        [member] = group.members
        return [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]

    joined = attend(client, name, topic)
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions != []
    deleted = client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5, DeleteTopicsResponse)
    assert deleted.responses[0].error_code == 0
    assert named() == []


@pytest.mark.parametrize("asked", [DeleteTopicState(None, bytes(16)), DeleteTopicState("nowhere", bytes(range(16)))])
def test_a_topic_is_deleted_by_its_name_or_by_its_id(client: RawKafka, asked: DeleteTopicState) -> None:
    answer = client.call(DeleteTopicsRequest(topics=[asked], timeout_ms=10_000), 6, DeleteTopicsResponse)
    assert [row.error_code for row in answer.responses] == [ErrorCode.INVALID_REQUEST]


def test_configs_are_told_as_they_were_spelled_once_and_in_one_spelling_afterwards(client: RawKafka, name: str) -> None:
    configs = [CreatableTopicConfig("retention.ms", " 5000000 "), CreatableTopicConfig("preallocate", "TRUE")]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 10_000, False)
    created = client.call(request, 7, CreateTopicsResponse).topics[0].configs or []
    told = {row.name: row.value for row in created}
    assert (told["retention.ms"], told["preallocate"]) == (" 5000000 ", "TRUE")
    wanted = [DescribeConfigsResource(2, name, ["retention.ms", "preallocate"])]
    described = client.call(DescribeConfigsRequest(wanted, True), 1, DescribeConfigsResponse).results[0].configs
    assert {row.name: row.value for row in described} == {"retention.ms": "5000000", "preallocate": "true"}
    assert {row.synonyms[0].value for row in described} == {"5000000", "true"}


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-7, 10)])
def test_a_time_that_means_nothing_is_told_before_a_partition_that_is_not_there(
    client: RawKafka, topic: str, timestamp: int, version: int
) -> None:
    rows = [ListOffsetsTopic(topic, [ListOffsetsPartition(index, -1, timestamp) for index in (0, 9)])]
    answer = client.call(ListOffsetsRequest(-1, 0, rows), version, ListOffsetsResponse)
    assert [row.error_code for row in answer.topics[0].partitions] == [ErrorCode.UNSUPPORTED_VERSION] * 2


def test_an_offset_out_of_range_says_nothing_else(client: RawKafka, topic: str) -> None:
    client.produce(topic, 0, batch_of([b"x"]))
    row = client.fetch(topic, 0, 99)
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)


def test_a_new_fetch_session_has_nothing_to_forget(client: RawKafka, topic: str) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0])],
    )
    answer = client.call(request, 11, FetchResponse)
    assert [(row.topic, len(row.partitions)) for row in answer.responses] == [(topic, 1)]


def test_no_epoch_ends_nowhere(client: RawKafka, topic: str) -> None:
    asked = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, -1)])]
    answer = client.call(OffsetForLeaderEpochRequest(-1, asked), 4, OffsetForLeaderEpochResponse)
    assert answer.topics[0].partitions[0].end_offset == -1


def test_names_that_cannot_be_are_told_apart_from_those_that_are_not_there(client: RawKafka) -> None:
    rows = [DescribeConfigsResource(2, name, None) for name in ("bad name", "nowhere")]
    results = client.call(DescribeConfigsRequest(rows), 4, DescribeConfigsResponse).results
    assert [row.error_code for row in results] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    states = client.call(DescribeTransactionsRequest([""]), 0, DescribeTransactionsResponse).transaction_states
    assert states[0].error_code == ErrorCode.INVALID_REQUEST
    request = AddPartitionsToTxnRequest("", 1, 0, [AddPartitionsToTxnTopic("nowhere", [])])
    assert client.call(request, 3, AddPartitionsToTxnResponse).results_by_topic[0].results_by_partition == []


def test_only_brokers_and_controllers_have_endpoints(client: RawKafka) -> None:
    codes = [
        client.call(DescribeClusterRequest(endpoint_type=kind), 1, DescribeClusterResponse).error_code
        for kind in (1, 2, 3)
    ]
    assert codes == [0, ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE]


def test_an_election_that_does_not_exist_is_refused(client: RawKafka, topic: str) -> None:
    answer = client.call(ElectLeadersRequest(5, [TopicPartitions(topic, [0])], 1000), 2, ElectLeadersResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST
    everywhere = client.call(ElectLeadersRequest(0, None, 1000), 2, ElectLeadersResponse)
    found = {row.topic: row.partition_result for row in everywhere.replica_election_results}
    assert found[topic] == []


def test_a_producer_that_begins_anew_in_the_midst_of_its_transaction_is_not_fenced(
    client: RawKafka, topic: str, name: str
) -> None:
    """It says who it is, so it is no zombie: what it left open is aborted, and it goes on under the next epoch."""
    found = init_transactions(client, name)
    producer = Producer(found.producer_id, found.producer_epoch)
    request = AddPartitionsToTxnRequest(name, producer.id, producer.epoch, [AddPartitionsToTxnTopic(topic, [0])])
    assert client.call(request, 3, AddPartitionsToTxnResponse).results_by_topic[0].results_by_partition[0]
    again = InitProducerIdRequest(name, 60_000, producer.id, producer.epoch)
    while (answer := client.call(again, 5, InitProducerIdResponse)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer.id, producer.epoch + 1)
