"""No route without a right, and no right that is only written down: what each request asks for is what its row says."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.access.service import Guard
from headrace.broker.access.words import CLUSTER_NAME, Operation, Principal, Resource
from headrace.broker.deferred import Deferred
from headrace.doors.kafka.rights import NOBODY_IS_ASKED, Need
from headrace.doors.kafka.routes import ROUTES, DirectRoute, Route
from headrace.doors.kafka.session import Session
from headrace.doors.logjam.handlers import data, ping
from headrace.doors.mlog.routes import ROUTES as MLOG_ROUTES
from headrace.doors.rustlog.routes import ROUTES as RUSTLOG_ROUTES
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    alter_client_quotas_request,
    alter_configs_request,
    alter_user_scram_credentials_request,
    consumer_group_heartbeat_request,
    create_acls_request,
    create_partitions_request,
    create_topics_request,
    delete_acls_request,
    delete_records_request,
    delete_topics_request,
    describe_client_quotas_request,
    describe_configs_request,
    describe_producers_request,
    describe_topic_partitions_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    list_offsets_request,
    offset_commit_request,
    offset_delete_request,
    offset_fetch_request,
    offset_for_leader_epoch_request,
    txn_offset_commit_request,
)
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest

UNASKED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""All that comes before anybody can have a right."""


ID = bytes(15) + b"t"


def test_every_kafka_route_has_a_right() -> None:
    for key, route in ROUTES.items():
        is_asked = route.right is not NOBODY_IS_ASKED
        assert is_asked is (key not in UNASKED), ApiKey(key).name
        if is_asked:
            assert route.right.needs
            inside = isinstance(route, DirectRoute) or key == ApiKey.DESCRIBE_CLUSTER
            assert (route.right.guard is None) is inside, ApiKey(key).name


def test_every_route_of_the_json_doors_has_a_right() -> None:
    free = {"Ping", "ListTopics", "FindRaftLeaderRequest", "ListTopicsRequest"}
    for kind, rustlog in RUSTLOG_ROUTES.items():
        assert bool(rustlog.needs) is (kind.__name__ not in free), kind
    for name, mlog in ((each.__name__, route) for each, route in MLOG_ROUTES.items()):
        assert bool(mlog.needs) is (name not in free), name


def test_every_handler_of_logjam_has_a_right() -> None:
    assert {each.operation for each in data.NEEDS} == {Operation.WRITE, Operation.CREATE, Operation.READ}
    assert ping.NEEDS == ()


class Asked:
    """Says no to everything and remembers what it was asked."""

    is_on = True
    revision = 0
    principal = Principal("nobody")
    host = ""

    def __init__(self) -> None:
        self.questions: set[Need] = set()

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        self.questions.add(Need(operation, resource))
        return False

    sees = may

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        return self.may(operation, resource)

    def may_create_topic(self, name: str) -> bool:
        return Guard.may_create_topic(cast(Guard, self), name)

    def operations(self, resource: Resource, name: str = CLUSTER_NAME) -> int:
        return 0


def samples() -> Iterator[Message]:
    """One request of each kind that names everything it can name."""
    yield describe_client_quotas_request.DescribeClientQuotasRequest()
    yield alter_client_quotas_request.AlterClientQuotasRequest(
        entries=[alter_client_quotas_request.EntryData([alter_client_quotas_request.EntityData("user", "alice")])]
    )
    yield list_offsets_request.ListOffsetsRequest(
        topics=[list_offsets_request.ListOffsetsTopic("t", [list_offsets_request.ListOffsetsPartition()])]
    )
    yield offset_commit_request.OffsetCommitRequest(
        "g",
        topics=[
            offset_commit_request.OffsetCommitRequestTopic(
                "t", ID, [offset_commit_request.OffsetCommitRequestPartition()]
            )
        ],
    )
    yield offset_fetch_request.OffsetFetchRequest(
        "g",
        [offset_fetch_request.OffsetFetchRequestTopic("t", [0])],
        groups=[
            offset_fetch_request.OffsetFetchRequestGroup(
                "g", topics=[offset_fetch_request.OffsetFetchRequestTopics("t", ID, [0])]
            )
        ],
    )
    yield FindCoordinatorRequest("g", 0, ["g"])
    yield FindCoordinatorRequest("x", 1, ["x"])
    yield JoinGroupRequest("g")
    yield HeartbeatRequest("g")
    yield LeaveGroupRequest("g")
    yield SyncGroupRequest("g")
    yield DescribeGroupsRequest(["g"])
    yield create_topics_request.CreateTopicsRequest([create_topics_request.CreatableTopic("t", 1, 1)])
    yield delete_topics_request.DeleteTopicsRequest([delete_topics_request.DeleteTopicState("t")], ["t"])
    yield delete_records_request.DeleteRecordsRequest(
        [delete_records_request.DeleteRecordsTopic("t", [delete_records_request.DeleteRecordsPartition()])]
    )
    yield InitProducerIdRequest("x")
    yield InitProducerIdRequest()
    yield offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch_request.OffsetForLeaderTopic(
                "t", [offset_for_leader_epoch_request.OffsetForLeaderPartition()]
            )
        ]
    )
    yield add_partitions_to_txn_request.AddPartitionsToTxnRequest(
        "x",
        topics=[add_partitions_to_txn_request.AddPartitionsToTxnTopic("t", [0])],
        transactions=[add_partitions_to_txn_request.AddPartitionsToTxnTransaction("x")],
    )
    yield add_offsets_to_txn_request.AddOffsetsToTxnRequest("x", group_id="g")
    yield EndTxnRequest("x")
    yield txn_offset_commit_request.TxnOffsetCommitRequest(
        "x",
        "g",
        topics=[
            txn_offset_commit_request.TxnOffsetCommitRequestTopic(
                "t", [txn_offset_commit_request.TxnOffsetCommitRequestPartition()]
            )
        ],
    )
    for number in (2, 4, 32):
        yield describe_configs_request.DescribeConfigsRequest(
            [describe_configs_request.DescribeConfigsResource(number, "1")]
        )
        yield alter_configs_request.AlterConfigsRequest([alter_configs_request.AlterConfigsResource(number, "1")])
        yield incremental_alter_configs_request.IncrementalAlterConfigsRequest(
            [incremental_alter_configs_request.AlterConfigsResource(number, "1")]
        )
    yield of_key(ApiKey.DESCRIBE_LOG_DIRS)
    yield create_partitions_request.CreatePartitionsRequest([create_partitions_request.CreatePartitionsTopic("t", 2)])
    yield DeleteGroupsRequest(["g"])
    yield elect_leaders_request.ElectLeadersRequest(topic_partitions=[elect_leaders_request.TopicPartitions("t", [0])])
    yield of_key(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    yield offset_delete_request.OffsetDeleteRequest("g", [offset_delete_request.OffsetDeleteRequestTopic("t", [])])
    yield describe_producers_request.DescribeProducersRequest([describe_producers_request.TopicRequest("t", [0])])
    yield DescribeTransactionsRequest(["x"])
    yield consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest("g", subscribed_topic_names=["t"])
    yield ConsumerGroupDescribeRequest(["g"])
    yield describe_topic_partitions_request.DescribeTopicPartitionsRequest(
        [describe_topic_partitions_request.TopicRequest("t")]
    )
    yield of_key(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    yield alter_user_scram_credentials_request.AlterUserScramCredentialsRequest(
        upsertions=[alter_user_scram_credentials_request.ScramCredentialUpsertion("alice")]
    )
    yield create_acls_request.CreateAclsRequest([create_acls_request.AclCreation()])
    yield of_key(ApiKey.DESCRIBE_ACLS)
    yield delete_acls_request.DeleteAclsRequest([delete_acls_request.DeleteAclsFilter()])


def of_key(key: ApiKey) -> Message:
    route = ROUTES[key]
    assert isinstance(route, Route)
    return route.request()


REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""LIST_GROUPS and LIST_TRANSACTIONS leave out instead: `test_access.py` of the conformance suite has them."""


@pytest.mark.parametrize("request_", list(samples()), ids=lambda each: type(each).__name__)
async def test_who_may_nothing_is_refused_and_no_handler_is_called(request_: Message) -> None:
    route = ROUTES[request_.API_KEY]
    assert isinstance(route, Route)
    assert route.right.guard is not None
    for version in range(route.versions[0], route.versions[1] + 1):
        guard = Asked()
        session = cast(Session, _StandIn(guard))
        request = route.request.decode(_encoded(request_, version), version)
        called: list[Message] = []

        def proceed(allowed: Any, called: list[Message] = called) -> Message:
            called.append(allowed)
            return _empty_response(route)

        answer = route.right.guard(request, version, session, proceed)
        assert isinstance(answer, Message)
        assert not isinstance(answer, Deferred)
        assert _codes(answer) & REFUSALS, f"v{version}: {answer}"
        # Rows of a like-named answer are written by other rules: what was written must be what is read.
        written = _encoded(answer, version)
        assert _encoded(type(answer).decode(written, version), version) == written
        # A handler may be asked for what is left, which is nothing.
        assert not any(_names_something(allowed) for allowed in called), f"v{version}"
        assert guard.questions <= set(route.right.needs), f"v{version}"


async def test_what_is_asked_is_all_that_the_table_says() -> None:
    asked: dict[int, set[Need]] = {}
    for sample in samples():
        route = ROUTES[sample.API_KEY]
        assert isinstance(route, Route)
        assert route.right.guard is not None
        for version, answers in itertools.product(range(route.versions[0], route.versions[1] + 1), ANSWERS):
            guard = Answering(answers)
            session = cast(Session, _StandIn(guard))
            request = route.request.decode(_encoded(sample, version), version)
            empty = _empty_response(route)
            route.right.guard(request, version, session, lambda _, empty=empty: empty)  # type: ignore[misc]
            asked.setdefault(sample.API_KEY, set()).update(guard.questions)
    # Asked of what the handler has answered, and so not of an empty answer.
    of_answers = {
        ApiKey.CREATE_TOPICS: {Need(Operation.DESCRIBE_CONFIGS, Resource.TOPIC)},
        ApiKey.CONSUMER_GROUP_DESCRIBE: {Need(Operation.DESCRIBE, Resource.TOPIC)},
        ApiKey.DESCRIBE_TRANSACTIONS: {Need(Operation.DESCRIBE, Resource.TOPIC)},
    }
    for key, questions in asked.items():
        assert questions | of_answers.get(ApiKey(key), set()) == set(ROUTES[key].right.needs), ApiKey(key).name
    untested = {key for key, route in ROUTES.items() if route.right.guard is not None} - set(asked)
    assert untested == {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}


ANSWERS: tuple[Callable[[Need], bool], ...] = (
    lambda _: False,
    lambda need: need.resource is not Resource.TOPIC,
    lambda need: need == Need(Operation.DESCRIBE, Resource.TOPIC),
)


class Answering(Asked):
    def __init__(self, answers: Callable[[Need], bool]) -> None:
        super().__init__()
        self._answers = answers

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        super().may(operation, resource, name)
        return self._answers(Need(operation, resource))

    sees = may


class _StandIn:
    """A session of somebody who is asked by `guard`; there is one topic, by its id."""

    def __init__(self, guard: Asked) -> None:
        self.guard = guard
        self.broker = self
        self.topics = self
        self.identity = SimpleNamespace(broker_id=1)

    def find_by_id(self, topic_id: bytes) -> Any:
        return SimpleNamespace(name="t") if topic_id == ID else None

    def find(self, name: str) -> Any:
        return SimpleNamespace(name=name)

    def has_partition(self, name: str, index: int) -> bool:
        return False

    def all(self) -> list[Any]:
        return []


def _encoded(request: Message, version: int) -> bytes:
    out = bytearray()
    request.encode(out, version)
    return bytes(out)


def _empty_response(route: Route) -> Message:
    module = importlib.import_module(route.request.__module__.removesuffix("_request") + "_response")
    return cast(Message, getattr(module, route.request.__name__.removesuffix("Request") + "Response")())


def _codes(value: Any) -> set[int]:
    found: set[int] = set()
    for name in getattr(value, "__struct_fields__", ()):
        each = getattr(value, name)
        if name.endswith("error_code"):
            found.add(each)
        for item in each if isinstance(each, list) else [each]:
            found |= _codes(item)
    return found


def _names_something(request: Message) -> bool:
    return any(
        getattr(request, name)
        for name in ("topics", "topic_names", "groups", "group_ids", "groups_names", "coordinator_keys", "resources")
        if hasattr(request, name)
    )
