"""Group requests byte by byte: every version served, the error codes of Apache Kafka, the traps that broke others."""

from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_groups import commit, committed, committed_legacy, join, join_request, sync
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.delete_groups_response import DeleteGroupsResponse
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_groups_response import DescribeGroupsResponse
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListGroupsResponse
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
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse

pytestmark = pytest.mark.requirement("X4.1")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 100}
    with running_node(tmp_path_factory.mktemp("node") / "data", settings) as started:
        with RawKafka(started.kafka) as client:
            client.create_topic("t", 2)
        yield started


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of its own for each test."""
    return str(request.node.name)


def stable_member(client: RawKafka, group: str) -> tuple[str, int]:
    joined = join(client, group)
    assert joined.error_code == 0
    assert sync(client, group, joined.member_id, joined.generation_id, {joined.member_id: b"all"}).error_code == 0
    return joined.member_id, joined.generation_id


@pytest.mark.trap(37, 47)
@pytest.mark.parametrize("version", range(10))
def test_group_of_one_lives_in_every_join_version(client: RawKafka, group: str, version: int) -> None:
    joined = join(client, group, version=version)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id
    assert [each.member_id for each in joined.members] == [joined.member_id]
    assert joined.protocol_name == "range"
    share = {joined.member_id: b"\x00\x01"}
    synced = sync(client, group, joined.member_id, joined.generation_id, share, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, b"\x00\x01")
    beat = HeartbeatRequest(group, joined.generation_id, joined.member_id)
    assert client.call(beat, min(version, 4), HeartbeatResponse).error_code == 0
    leave = LeaveGroupRequest(group, joined.member_id, [MemberIdentity(joined.member_id)])
    left = client.call(leave, min(version, 5), LeaveGroupResponse)
    assert left.error_code == 0
    assert all(each.error_code == 0 for each in left.members)


@pytest.mark.trap(33)
def test_new_member_is_told_its_id_from_version_4_on(client: RawKafka, group: str) -> None:
    asked = client.call(join_request(group), 4, JoinGroupResponse)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id.startswith("raw-")
    again = client.call(join_request(group, asked.member_id), 4, JoinGroupResponse)
    assert (again.error_code, again.member_id) == (0, asked.member_id)


@pytest.mark.trap(33)
def test_only_the_leader_is_told_the_members(node: NodeProcess, client: RawKafka, group: str) -> None:
    leader, generation = stable_member(client, group)
    with RawKafka(node.kafka) as other:
        waiting = other.send_request(join_request(group), 3)
        beat = HeartbeatRequest(group, generation, leader)
        eventually(
            lambda: client.call(beat, 3, HeartbeatResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
            60,
            "the leader was not told to join again",
        )
        rejoined = join(client, group, leader)
        follower = other.read_response(JoinGroupResponse, 3, waiting)
    assert len(rejoined.members) == 2
    assert follower.members == []
    assert follower.leader == rejoined.leader == leader
    assert follower.generation_id == generation + 1


@pytest.mark.trap(34)
def test_member_the_leader_forgot_gets_empty_bytes(client: RawKafka, group: str) -> None:
    joined = join(client, group)
    assert sync(client, group, joined.member_id, joined.generation_id).assignment == b""


@pytest.mark.trap(36)
def test_static_member_is_replaced_and_its_former_self_fenced(client: RawKafka, group: str) -> None:
    first = client.call(join_request(group, instance_id="i"), 5, JoinGroupResponse)
    share = {first.member_id: b"all"}
    assert sync(client, group, first.member_id, first.generation_id, share).error_code == 0
    second = client.call(join_request(group, instance_id="i"), 9, JoinGroupResponse)
    assert second.error_code == 0
    assert second.generation_id == first.generation_id
    assert second.skip_assignment
    assert sync(client, group, second.member_id, second.generation_id).assignment == b"all"
    beat = HeartbeatRequest(group, first.generation_id, first.member_id, "i")
    assert client.call(beat, 3, HeartbeatResponse).error_code == ErrorCode.FENCED_INSTANCE_ID
    leave = LeaveGroupRequest(group, members=[MemberIdentity("", "i"), MemberIdentity("nobody", None)])
    left = client.call(leave, 3, LeaveGroupResponse)
    assert [each.error_code for each in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_wrong_requests_get_kafkas_codes(client: RawKafka, group: str) -> None:
    def code(request: object, **more: object) -> int:
        return client.call(join_request(group, **more), 5, JoinGroupResponse).error_code  # type: ignore[arg-type]

    assert client.call(join_request(""), 5, JoinGroupResponse).error_code == ErrorCode.INVALID_GROUP_ID
    assert code(None, session_timeout_ms=1) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(None, protocols=()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(None, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    member_id, generation = stable_member(client, group)
    assert sync(client, group, "stranger", generation).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(client, group, member_id, generation + 1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert code(None, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.trap(48)
@pytest.mark.parametrize("version", range(2, 10))
def test_simple_consumer_commits_in_every_version(client: RawKafka, group: str, version: int) -> None:
    assert commit(client, group, "t", {0: 7, 1: 8}, version=version) == {0: 0, 1: 0}
    assert committed(client, group, "t", 0) == (7, 0)
    for fetch_version in range(1, 8):
        assert committed_legacy(client, group, "t", 1, fetch_version) == 8


def test_topics_are_named_by_id_from_version_10_on(client: RawKafka, group: str) -> None:
    commit(client, group, "t", {0: 3})
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    [topic] = client.call(everything, 10, OffsetFetchResponse).groups[0].topics
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")]
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=partitions),
            OffsetCommitRequestTopic(topic_id=b"?" * 16, partitions=partitions),
        ],
    )
    answer = client.call(request, 10, OffsetCommitResponse)
    codes = [each.partitions[0].error_code for each in answer.topics]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert committed(client, group, "t") == (9, 0)


def test_commit_is_refused_partition_by_partition(client: RawKafka, group: str) -> None:
    assert commit(client, group, "t", {0: 1, 5: 1}) == {0: 0, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(client, group, "nowhere", {0: 1}) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    too_long = "x" * 4097
    assert commit(client, group, "t", {0: 2}, metadata=too_long) == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert committed(client, group, "t") == (1, 0)
    assert committed(client, group, "t", 1) == (-1, 0)


def test_commit_of_a_member_is_checked(client: RawKafka, group: str) -> None:
    member_id, generation = stable_member(client, group)
    assert commit(client, group, "t", {0: 5}, member_id=member_id, generation=generation) == {0: 0}
    stale = commit(client, group, "t", {0: 6}, member_id=member_id, generation=generation - 1)
    assert stale == {0: ErrorCode.ILLEGAL_GENERATION}
    assert commit(client, group, "t", {0: 6}) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(client, f"{group}-none", "t", {0: 6}, member_id="m", generation=3) == {
        0: ErrorCode.ILLEGAL_GENERATION
    }


@pytest.mark.trap(49)
@pytest.mark.parametrize("version", range(7))
def test_unknown_group_is_dead_until_version_6_and_then_not_found(client: RawKafka, version: int) -> None:
    [found] = client.call(DescribeGroupsRequest(["nobody"]), version, DescribeGroupsResponse).groups
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (found.error_code, found.group_state) == (expected, "Dead")


def test_groups_are_listed_described_and_deleted(client: RawKafka, group: str) -> None:
    member_id, _ = stable_member(client, group)
    [described] = client.call(DescribeGroupsRequest([group]), 5, DescribeGroupsResponse).groups
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    [member] = described.members
    assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"metadata", b"all")
    for version in range(6):
        listed = client.call(ListGroupsRequest(), version, ListGroupsResponse).groups
        assert group in [each.group_id for each in listed]
    request = ListGroupsRequest(["stable"], ["Classic"])
    listed = client.call(request, 5, ListGroupsResponse).groups
    assert [(each.group_state, each.group_type) for each in listed if each.group_id == group] == [("Stable", "classic")]
    others = client.call(ListGroupsRequest([], ["consumer"]), 5, ListGroupsResponse).groups
    assert group not in [each.group_id for each in others]

    def delete() -> list[int]:
        results = client.call(DeleteGroupsRequest([group, "nobody"]), 2, DeleteGroupsResponse).results
        return [each.error_code for each in results]

    assert delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    client.call(LeaveGroupRequest(group, member_id), 0, LeaveGroupResponse)
    commit(client, group, "t", {0: 4})
    assert delete() == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert committed(client, group, "t") == (-1, 0)


def test_single_offsets_are_deleted(client: RawKafka, group: str) -> None:
    commit(client, group, "t", {0: 4, 1: 5})
    wanted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    answer = client.call(OffsetDeleteRequest(group, wanted), 0, OffsetDeleteResponse)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(client, group, "t", 0) == (-1, 0)
    assert committed(client, group, "t", 1) == (5, 0)
    missing = client.call(OffsetDeleteRequest("nobody", wanted), 0, OffsetDeleteResponse)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def beat_request(
    group: str, member_id: str, epoch: int, owned: list[TopicPartitions] | None = None, **more: str
) -> ConsumerGroupHeartbeatRequest:
    is_joining = epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=120_000 if is_joining else -1,
        subscribed_topic_names=["t"] if is_joining and "subscribed_topic_regex" not in more else None,
        topic_partitions=[] if is_joining else owned,
        **more,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_next_generation_group_assigns_and_moves_partitions(client: RawKafka, group: str, version: int) -> None:
    def beat(*arguments: object, **more: str) -> ConsumerGroupHeartbeatResponse:
        request = beat_request(group, *arguments, **more)  # type: ignore[arg-type]
        return client.call(request, version, ConsumerGroupHeartbeatResponse)

    first = beat("a", 0)
    assert first.error_code == 0
    assert first.heartbeat_interval_ms == 100
    assert first.assignment is not None
    [share] = first.assignment.topic_partitions
    assert share.partitions == [0, 1]
    second = beat("b", 0)
    assert second.assignment is not None
    assert second.assignment.topic_partitions == []
    told = beat("a", first.member_epoch)
    assert told.assignment is not None
    [kept] = told.assignment.topic_partitions
    done = beat("a", told.member_epoch, [TopicPartitions(kept.topic_id, kept.partitions)])
    assert done.member_epoch == second.member_epoch
    moved = beat("b", second.member_epoch)
    assert moved.assignment is not None
    assert moved.assignment.topic_partitions[0].partitions != kept.partitions
    [described] = client.call(ConsumerGroupDescribeRequest([group]), version, ConsumerGroupDescribeResponse).groups
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert [each.assignment.topic_partitions[0].topic_name for each in described.members] == ["t", "t"]
    assert beat("a", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat("z", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("a", -1).member_epoch == -1
    joined = client.call(join_request(group), 3, JoinGroupResponse)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_next_generation_requests_are_checked(client: RawKafka, group: str) -> None:
    def beat(*arguments: object, **more: str) -> ConsumerGroupHeartbeatResponse:
        request = beat_request(group, *arguments, **more)  # type: ignore[arg-type]
        return client.call(request, 1, ConsumerGroupHeartbeatResponse)

    assert beat("", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat("a", 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat("a", 0, server_assignor="nope").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert beat("a", 0, subscribed_topic_regex="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    matched = beat("a", 0, subscribed_topic_regex="[s-u]")
    assert matched.assignment is not None
    assert matched.assignment.topic_partitions[0].partitions == [0, 1]
    [missing] = client.call(ConsumerGroupDescribeRequest(["nobody"]), 0, ConsumerGroupDescribeResponse).groups
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_member_of_a_group_that_went_back_to_the_classic_protocol_is_told_to_join_again(
    client: RawKafka, group: str
) -> None:
    """After a long silence it finds classic members only; librdkafka takes GROUP_ID_NOT_FOUND for the end of all."""
    stable_member(client, group)
    answer = client.call(beat_request(group, "was-away", 5), 1, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
