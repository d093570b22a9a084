"""The route table is the support matrix: ApiVersions, the docs table and the tests are derived from it.

A `Route` decodes the request and encodes what its handler returns. A `DirectRoute` is for the few requests that make up
nearly all traffic: its handler reads the frame in place and fills the slot itself. Each has the right that its client needs.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace.doors.connection import Blocked
from headrace.doors.kafka.guards import cluster, groups, topics, transactions
from headrace.doors.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)
from headrace.doors.kafka.rights import NOBODY_IS_ASKED, Right
from headrace.doors.kafka.session import Session
from headrace.doors.slots import Slot
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import RequestHeader
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.kafka.messages.alter_client_quotas_request import AlterClientQuotasRequest
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.kafka.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.create_acls_request import CreateAclsRequest
from headrace.wire.kafka.messages.create_partitions_request import CreatePartitionsRequest
from headrace.wire.kafka.messages.create_topics_request import CreateTopicsRequest
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsRequest
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.delete_records_request import DeleteRecordsRequest
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_configs_request import DescribeConfigsRequest
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.kafka.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.kafka.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from headrace.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.kafka.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.kafka.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest
from headrace.wire.kafka.messages.txn_offset_commit_request import TxnOffsetCommitRequest

Versions = tuple[int, int]
DirectHandler = Callable[[memoryview, RequestHeader, Slot, Session, str | None], Blocked | None]


class Range(NamedTuple):
    """One row of ApiVersions."""

    key: int
    first: int
    last: int


class Route(msgspec.Struct, frozen=True):
    """`handle(request, version, session)` gives the response, at once or later."""

    key: ApiKey
    versions: Versions
    request: type[Message]
    # Any: each handler takes its own request class, and the table holds them all.
    handle: Callable[..., Message | Awaitable[Message]]
    right: Right
    advertised_from: int | None = None


class DirectRoute(msgspec.Struct, frozen=True):
    key: ApiKey
    versions: Versions
    handle: DirectHandler
    right: Right
    advertised_from: int | None = None
    """First version that ApiVersions names, where it is lower than what we serve (trap 5)."""


AnyRoute = Route | DirectRoute


def route_table(*routes: AnyRoute) -> Mapping[int, AnyRoute]:
    table = {int(route.key): route for route in routes}
    assert len(table) == len(routes), "two routes for one key"
    return dict(sorted(table.items()))


ROUTES: Final = route_table(
    DirectRoute(ApiKey.PRODUCE, (3, 13), produce.handle, produce.RIGHT, advertised_from=0),
    DirectRoute(ApiKey.FETCH, (4, 18), fetch.handle, fetch.RIGHT),
    Route(ApiKey.LIST_OFFSETS, (1, 10), ListOffsetsRequest, list_offsets.handle, topics.LIST_OFFSETS),
    DirectRoute(ApiKey.METADATA, (0, 13), metadata.handle, metadata.RIGHT),
    Route(ApiKey.OFFSET_COMMIT, (2, 10), OffsetCommitRequest, offset_commit.handle, groups.OFFSET_COMMIT),
    Route(ApiKey.OFFSET_FETCH, (1, 10), OffsetFetchRequest, offset_fetch.handle, groups.OFFSET_FETCH),
    Route(ApiKey.FIND_COORDINATOR, (0, 5), FindCoordinatorRequest, find_coordinator.handle, groups.FIND_COORDINATOR),
    Route(ApiKey.JOIN_GROUP, (0, 9), JoinGroupRequest, join_group.handle, groups.JOIN_GROUP),
    Route(ApiKey.HEARTBEAT, (0, 4), HeartbeatRequest, heartbeat.handle, groups.HEARTBEAT),
    Route(ApiKey.LEAVE_GROUP, (0, 5), LeaveGroupRequest, leave_group.handle, groups.LEAVE_GROUP),
    Route(ApiKey.SYNC_GROUP, (0, 5), SyncGroupRequest, sync_group.handle, groups.SYNC_GROUP),
    Route(ApiKey.DESCRIBE_GROUPS, (0, 6), DescribeGroupsRequest, describe_groups.handle, groups.DESCRIBE_GROUPS),
    Route(ApiKey.LIST_GROUPS, (0, 5), ListGroupsRequest, list_groups.handle, groups.LIST_GROUPS),
    Route(ApiKey.SASL_HANDSHAKE, (0, 1), SaslHandshakeRequest, sasl_handshake.handle, NOBODY_IS_ASKED),
    Route(ApiKey.SASL_AUTHENTICATE, (0, 2), SaslAuthenticateRequest, sasl_authenticate.handle, NOBODY_IS_ASKED),
    Route(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (0, 1),
        DescribeClientQuotasRequest,
        describe_client_quotas.handle,
        cluster.DESCRIBE_QUOTAS,
    ),
    Route(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (0, 1),
        AlterClientQuotasRequest,
        alter_client_quotas.handle,
        cluster.ALTER_QUOTAS,
    ),
    Route(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (0, 0),
        DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.handle,
        cluster.DESCRIBE_USERS,
    ),
    Route(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (0, 0),
        AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.handle,
        cluster.ALTER_USERS,
    ),
    Route(ApiKey.API_VERSIONS, (0, 4), ApiVersionsRequest, api_versions.handle, NOBODY_IS_ASKED),
    Route(ApiKey.CREATE_TOPICS, (2, 7), CreateTopicsRequest, create_topics.handle, topics.CREATE_TOPICS),
    Route(ApiKey.DELETE_TOPICS, (1, 6), DeleteTopicsRequest, delete_topics.handle, topics.DELETE_TOPICS),
    Route(ApiKey.DELETE_RECORDS, (0, 2), DeleteRecordsRequest, delete_records.handle, topics.DELETE_RECORDS),
    Route(
        ApiKey.INIT_PRODUCER_ID, (0, 5), InitProducerIdRequest, init_producer_id.handle, transactions.INIT_PRODUCER_ID
    ),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (2, 4),
        OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.handle,
        topics.OFFSET_FOR_LEADER_EPOCH,
    ),
    Route(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 5),
        AddPartitionsToTxnRequest,
        add_partitions_to_txn.handle,
        transactions.ADD_PARTITIONS_TO_TXN,
    ),
    Route(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        AddOffsetsToTxnRequest,
        add_offsets_to_txn.handle,
        transactions.ADD_OFFSETS_TO_TXN,
    ),
    Route(ApiKey.END_TXN, (0, 5), EndTxnRequest, end_txn.handle, transactions.END_TXN),
    Route(
        ApiKey.TXN_OFFSET_COMMIT,
        (0, 5),
        TxnOffsetCommitRequest,
        txn_offset_commit.handle,
        transactions.TXN_OFFSET_COMMIT,
    ),
    Route(ApiKey.DESCRIBE_CONFIGS, (1, 4), DescribeConfigsRequest, describe_configs.handle, cluster.DESCRIBE_CONFIGS),
    Route(ApiKey.ALTER_CONFIGS, (0, 2), AlterConfigsRequest, alter_configs.handle, cluster.ALTER_CONFIGS),
    Route(ApiKey.DESCRIBE_ACLS, (1, 3), DescribeAclsRequest, describe_acls.handle, cluster.DESCRIBE_ACLS),
    Route(ApiKey.CREATE_ACLS, (1, 3), CreateAclsRequest, create_acls.handle, cluster.CREATE_ACLS),
    Route(ApiKey.DELETE_ACLS, (1, 3), DeleteAclsRequest, delete_acls.handle, cluster.DELETE_ACLS),
    Route(
        ApiKey.DESCRIBE_LOG_DIRS, (1, 4), DescribeLogDirsRequest, describe_log_dirs.handle, cluster.DESCRIBE_LOG_DIRS
    ),
    Route(
        ApiKey.CREATE_PARTITIONS, (0, 3), CreatePartitionsRequest, create_partitions.handle, topics.CREATE_PARTITIONS
    ),
    Route(ApiKey.DELETE_GROUPS, (0, 2), DeleteGroupsRequest, delete_groups.handle, groups.DELETE_GROUPS),
    Route(ApiKey.ELECT_LEADERS, (0, 2), ElectLeadersRequest, elect_leaders.handle, cluster.ELECT_LEADERS),
    Route(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (0, 1),
        IncrementalAlterConfigsRequest,
        incremental_alter_configs.handle,
        cluster.ALTER_CONFIGS,
    ),
    Route(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        ListPartitionReassignmentsRequest,
        list_partition_reassignments.handle,
        cluster.LIST_PARTITION_REASSIGNMENTS,
    ),
    Route(ApiKey.OFFSET_DELETE, (0, 0), OffsetDeleteRequest, offset_delete.handle, groups.OFFSET_DELETE),
    Route(ApiKey.DESCRIBE_CLUSTER, (0, 2), DescribeClusterRequest, describe_cluster.handle, cluster.DESCRIBE_CLUSTER),
    Route(
        ApiKey.DESCRIBE_PRODUCERS,
        (0, 0),
        DescribeProducersRequest,
        describe_producers.handle,
        topics.DESCRIBE_PRODUCERS,
    ),
    Route(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        DescribeTransactionsRequest,
        describe_transactions.handle,
        transactions.DESCRIBE_TRANSACTIONS,
    ),
    Route(
        ApiKey.LIST_TRANSACTIONS,
        (0, 2),
        ListTransactionsRequest,
        list_transactions.handle,
        transactions.LIST_TRANSACTIONS,
    ),
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (0, 1),
        ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.handle,
        groups.CONSUMER_GROUP_HEARTBEAT,
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        ConsumerGroupDescribeRequest,
        consumer_group_describe.handle,
        groups.CONSUMER_GROUP_DESCRIBE,
    ),
    Route(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0, 0),
        DescribeTopicPartitionsRequest,
        describe_topic_partitions.handle,
        topics.DESCRIBE_TOPIC_PARTITIONS,
    ),
)


def advertised_ranges() -> list[Range]:
    return [
        Range(key, route.versions[0] if route.advertised_from is None else route.advertised_from, route.versions[1])
        for key, route in ROUTES.items()
    ]
