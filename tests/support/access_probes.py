"""Every request of Kafka's that needs a right, once, and what of its answer the rights decide: codes, names, operations."""

from collections.abc import Iterator
from typing import Any

import msgspec
from tests.support.raw_kafka import RawKafka, batch_of, produce_request

from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages import (
    add_offsets_to_txn_request,
    add_offsets_to_txn_response,
    add_partitions_to_txn_request,
    add_partitions_to_txn_response,
    alter_user_scram_credentials_request,
    alter_user_scram_credentials_response,
    consumer_group_describe_request,
    consumer_group_describe_response,
    consumer_group_heartbeat_request,
    consumer_group_heartbeat_response,
    create_acls_request,
    create_acls_response,
    create_partitions_request,
    create_partitions_response,
    create_topics_request,
    create_topics_response,
    delete_acls_request,
    delete_acls_response,
    delete_groups_request,
    delete_groups_response,
    delete_records_request,
    delete_records_response,
    delete_topics_request,
    delete_topics_response,
    describe_acls_request,
    describe_acls_response,
    describe_cluster_request,
    describe_cluster_response,
    describe_configs_request,
    describe_configs_response,
    describe_groups_request,
    describe_groups_response,
    describe_log_dirs_request,
    describe_log_dirs_response,
    describe_producers_request,
    describe_producers_response,
    describe_topic_partitions_request,
    describe_topic_partitions_response,
    describe_transactions_request,
    describe_transactions_response,
    describe_user_scram_credentials_request,
    describe_user_scram_credentials_response,
    elect_leaders_request,
    elect_leaders_response,
    end_txn_request,
    end_txn_response,
    fetch_request,
    fetch_response,
    find_coordinator_request,
    find_coordinator_response,
    heartbeat_request,
    heartbeat_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
    init_producer_id_request,
    init_producer_id_response,
    join_group_request,
    join_group_response,
    leave_group_request,
    leave_group_response,
    list_groups_request,
    list_groups_response,
    list_offsets_request,
    list_offsets_response,
    list_partition_reassignments_request,
    list_partition_reassignments_response,
    list_transactions_request,
    list_transactions_response,
    metadata_request,
    metadata_response,
    offset_commit_request,
    offset_commit_response,
    offset_delete_request,
    offset_delete_response,
    offset_fetch_request,
    offset_fetch_response,
    offset_for_leader_epoch_request,
    offset_for_leader_epoch_response,
    sasl_authenticate_request,
    sasl_authenticate_response,
    sasl_handshake_request,
    sasl_handshake_response,
    sync_group_request,
    sync_group_response,
    txn_offset_commit_request,
    txn_offset_commit_response,
)
from headrace.wire.kafka.messages.produce_response import ProduceResponse
from headrace.wire.kafka.sasl import exchange

TOPICS = ("orders", "other", "missing")
Probe = tuple[Message, int, type[Message]]

_JUDGED = ("error_code", "authorized_operations")
_NAMING = {"name", "topic", "topic_name", "resource_name", "group_id", "transactional_id", "key", "user"}
_INDEXES = {"partition_index", "partition", "partition_id"}


def log_in(client: RawKafka, user: str, password: str) -> None:
    shaken = client.call(
        sasl_handshake_request.SaslHandshakeRequest("PLAIN"), 1, sasl_handshake_response.SaslHandshakeResponse
    )
    assert shaken.error_code == 0
    (message,) = exchange("PLAIN", user, password, nonce="")
    answer = client.call(
        sasl_authenticate_request.SaslAuthenticateRequest(message),
        2,
        sasl_authenticate_response.SaslAuthenticateResponse,
    )
    assert answer.error_code == 0, answer.error_message


def probes() -> Iterator[Probe]:
    yield from _topic_probes()
    yield from _group_probes()
    yield from _transaction_probes()
    yield from _cluster_probes()


def _topic_probes() -> Iterator[Probe]:
    m = metadata_request
    named = [m.MetadataRequestTopic(name=name) for name in TOPICS]
    yield (
        m.MetadataRequest(named, False, False, True),
        9,
        metadata_response.MetadataResponse,
    )
    yield m.MetadataRequest(None, False, True, False), 9, metadata_response.MetadataResponse
    for name in TOPICS:
        yield produce_request(name, 0, batch_of([b"v"])), 9, ProduceResponse
    f = fetch_request
    wanted = [f.FetchTopic(topic=name, partitions=[f.FetchPartition(partition=0)]) for name in TOPICS]
    yield f.FetchRequest(max_wait_ms=0, max_bytes=1000, topics=wanted), 12, fetch_response.FetchResponse
    yield (
        f.FetchRequest(replica_id=5, max_wait_ms=0, max_bytes=1000, topics=wanted[:1]),
        12,
        fetch_response.FetchResponse,
    )
    lo = list_offsets_request
    yield (
        lo.ListOffsetsRequest(
            -1, 0, [lo.ListOffsetsTopic(name, [lo.ListOffsetsPartition(0, -1, -1)]) for name in TOPICS]
        ),
        7,
        list_offsets_response.ListOffsetsResponse,
    )
    ct = create_topics_request
    new = [ct.CreatableTopic(name, 1, 1) for name in ("orders-new", "new")]
    yield ct.CreateTopicsRequest(new, validate_only=True), 7, create_topics_response.CreateTopicsResponse
    dt = delete_topics_request
    yield (
        dt.DeleteTopicsRequest(topic_names=["missing"], timeout_ms=10_000),
        5,
        delete_topics_response.DeleteTopicsResponse,
    )
    yield (
        dt.DeleteTopicsRequest([dt.DeleteTopicState("missing")], timeout_ms=10_000),
        6,
        delete_topics_response.DeleteTopicsResponse,
    )
    dr = delete_records_request
    yield (
        dr.DeleteRecordsRequest(
            [dr.DeleteRecordsTopic(name, [dr.DeleteRecordsPartition(0, 0)]) for name in TOPICS], 10_000
        ),
        2,
        delete_records_response.DeleteRecordsResponse,
    )
    cp = create_partitions_request
    yield (
        cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, 3) for name in TOPICS], 10_000, True),
        3,
        create_partitions_response.CreatePartitionsResponse,
    )
    ol = offset_for_leader_epoch_request
    yield (
        ol.OffsetForLeaderEpochRequest(
            -1, [ol.OffsetForLeaderTopic(name, [ol.OffsetForLeaderPartition(0, -1, 0)]) for name in TOPICS]
        ),
        4,
        offset_for_leader_epoch_response.OffsetForLeaderEpochResponse,
    )
    dp = describe_producers_request
    yield (
        dp.DescribeProducersRequest([dp.TopicRequest(name, [0]) for name in TOPICS]),
        0,
        describe_producers_response.DescribeProducersResponse,
    )
    tp = describe_topic_partitions_request
    yield (
        tp.DescribeTopicPartitionsRequest([tp.TopicRequest(name) for name in TOPICS]),
        0,
        describe_topic_partitions_response.DescribeTopicPartitionsResponse,
    )


def _group_probes() -> Iterator[Probe]:
    oc = offset_commit_request
    yield (
        oc.OffsetCommitRequest(
            "g",
            topics=[
                oc.OffsetCommitRequestTopic(name, partitions=[oc.OffsetCommitRequestPartition(0, 1)]) for name in TOPICS
            ],
        ),
        8,
        offset_commit_response.OffsetCommitResponse,
    )
    of = offset_fetch_request
    yield (
        of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic(name, [0]) for name in TOPICS]),
        7,
        offset_fetch_response.OffsetFetchResponse,
    )
    yield of.OffsetFetchRequest("g", None), 7, offset_fetch_response.OffsetFetchResponse
    groups = [
        of.OffsetFetchRequestGroup("g", topics=[of.OffsetFetchRequestTopics(name, bytes(16), [0]) for name in TOPICS]),
        of.OffsetFetchRequestGroup("h", topics=None),
    ]
    yield of.OffsetFetchRequest(groups=groups), 8, offset_fetch_response.OffsetFetchResponse
    fc = find_coordinator_request
    for kind, keys in ((0, ["g", "h"]), (1, ["x", "y"])):
        yield (
            fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys),
            4,
            find_coordinator_response.FindCoordinatorResponse,
        )
        yield fc.FindCoordinatorRequest(keys[0], kind), 2, find_coordinator_response.FindCoordinatorResponse
    yield (
        join_group_request.JoinGroupRequest(
            "g", 30_000, 30_000, "", None, "consumer", [join_group_request.JoinGroupRequestProtocol("range", b"")]
        ),
        5,
        join_group_response.JoinGroupResponse,
    )
    yield heartbeat_request.HeartbeatRequest("g", 1, "nobody"), 4, heartbeat_response.HeartbeatResponse
    yield (
        leave_group_request.LeaveGroupRequest("g", members=[leave_group_request.MemberIdentity("nobody")]),
        4,
        leave_group_response.LeaveGroupResponse,
    )
    yield (
        sync_group_request.SyncGroupRequest("g", 1, "nobody", None, "consumer", "range"),
        5,
        sync_group_response.SyncGroupResponse,
    )
    yield (
        describe_groups_request.DescribeGroupsRequest(["g", "h"], True),
        5,
        describe_groups_response.DescribeGroupsResponse,
    )
    yield list_groups_request.ListGroupsRequest(), 4, list_groups_response.ListGroupsResponse
    yield (
        delete_groups_request.DeleteGroupsRequest(["no-such", "h"]),
        2,
        delete_groups_response.DeleteGroupsResponse,
    )
    od = offset_delete_request
    yield (
        od.OffsetDeleteRequest(
            "no-such",
            [od.OffsetDeleteRequestTopic(name, [od.OffsetDeleteRequestPartition(0)]) for name in TOPICS],
        ),
        0,
        offset_delete_response.OffsetDeleteResponse,
    )
    yield (
        consumer_group_describe_request.ConsumerGroupDescribeRequest(["g", "no-such"], True),
        0,
        consumer_group_describe_response.ConsumerGroupDescribeResponse,
    )
    for names in (["orders"], ["orders", "other"]):
        yield (
            consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
                "never", "nobody", 7, subscribed_topic_names=names
            ),
            0,
            consumer_group_heartbeat_response.ConsumerGroupHeartbeatResponse,
        )


def _transaction_probes() -> Iterator[Probe]:
    yield (
        init_producer_id_request.InitProducerIdRequest(None, 1000),
        4,
        init_producer_id_response.InitProducerIdResponse,
    )
    ap = add_partitions_to_txn_request
    for topics in (("orders",), TOPICS):
        yield (
            ap.AddPartitionsToTxnRequest("x", 999, 0, [ap.AddPartitionsToTxnTopic(name, [0]) for name in topics]),
            3,
            add_partitions_to_txn_response.AddPartitionsToTxnResponse,
        )
    for is_verifying in (False, True):
        batched = ap.AddPartitionsToTxnTransaction(
            "x", 999, 0, is_verifying, [ap.AddPartitionsToTxnTopic("orders", [0])]
        )
        yield (
            ap.AddPartitionsToTxnRequest(transactions=[batched]),
            5,
            add_partitions_to_txn_response.AddPartitionsToTxnResponse,
        )
    yield (
        add_offsets_to_txn_request.AddOffsetsToTxnRequest("x", 999, 0, "g"),
        3,
        add_offsets_to_txn_response.AddOffsetsToTxnResponse,
    )
    yield end_txn_request.EndTxnRequest("x", 999, 0, True), 3, end_txn_response.EndTxnResponse
    tc = txn_offset_commit_request
    yield (
        tc.TxnOffsetCommitRequest(
            "x",
            "g",
            999,
            0,
            topics=[
                tc.TxnOffsetCommitRequestTopic(name, [tc.TxnOffsetCommitRequestPartition(0, 1)]) for name in TOPICS[:2]
            ],
        ),
        3,
        txn_offset_commit_response.TxnOffsetCommitResponse,
    )
    yield (
        describe_transactions_request.DescribeTransactionsRequest(["x", "y"]),
        0,
        describe_transactions_response.DescribeTransactionsResponse,
    )
    yield list_transactions_request.ListTransactionsRequest(), 0, list_transactions_response.ListTransactionsResponse


def _cluster_probes() -> Iterator[Probe]:
    dc = describe_configs_request
    resources = [dc.DescribeConfigsResource(2, name, ["retention.ms"]) for name in TOPICS]
    resources.append(dc.DescribeConfigsResource(4, "1", ["broker.id"]))
    yield dc.DescribeConfigsRequest(resources), 4, describe_configs_response.DescribeConfigsResponse
    ia = incremental_alter_configs_request
    change = [ia.AlterableConfig("retention.ms", 0, "1000")]
    yield (
        ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(2, name, change) for name in TOPICS], True),
        1,
        incremental_alter_configs_response.IncrementalAlterConfigsResponse,
    )
    yield describe_log_dirs_request.DescribeLogDirsRequest([]), 4, describe_log_dirs_response.DescribeLogDirsResponse
    yield (
        elect_leaders_request.ElectLeadersRequest(0, [elect_leaders_request.TopicPartitions("orders", [0])], 10_000),
        2,
        elect_leaders_response.ElectLeadersResponse,
    )
    yield (
        list_partition_reassignments_request.ListPartitionReassignmentsRequest(10_000),
        0,
        list_partition_reassignments_response.ListPartitionReassignmentsResponse,
    )
    yield (
        describe_cluster_request.DescribeClusterRequest(True),
        0,
        describe_cluster_response.DescribeClusterResponse,
    )
    yield (
        describe_acls_request.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        3,
        describe_acls_response.DescribeAclsResponse,
    )
    yield (
        create_acls_request.CreateAclsRequest([create_acls_request.AclCreation(2, "t", 3, "User:zoe", "*", 3, 3)]),
        3,
        create_acls_response.CreateAclsResponse,
    )
    yield (
        delete_acls_request.DeleteAclsRequest(
            [delete_acls_request.DeleteAclsFilter(2, "t", 3, "User:zoe", None, 1, 1)]
        ),
        3,
        delete_acls_response.DeleteAclsResponse,
    )
    yield (
        describe_user_scram_credentials_request.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials_request.UserName("nobody")]
        ),
        0,
        describe_user_scram_credentials_response.DescribeUserScramCredentialsResponse,
    )
    yield (
        alter_user_scram_credentials_request.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials_request.ScramCredentialDeletion("nobody", 1)]
        ),
        0,
        alter_user_scram_credentials_response.AlterUserScramCredentialsResponse,
    )


def judged(value: Any, name: str = "") -> Any:
    """Codes, names and operations; rows in the order of their names. Any: messages of any shape."""
    if isinstance(value, msgspec.Struct):
        found = {key: judged(getattr(value, key), key) for key in value.__struct_fields__}
        if "configs" in found:
            # Which there are is each broker's own; whether any are shown is a question of rights.
            found["configs"] = bool(found["configs"])
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, list):
        # How many partitions a coordinator's topic has is each broker's own.
        rows = [row for row in (judged(each) for each in value) if row and not _is_internal(row)]
        return sorted(rows, key=repr) or None
    if name.endswith(_JUDGED) or (name in _NAMING and value) or name in _INDEXES:
        return value
    return None


def _is_internal(row: Any) -> bool:
    return isinstance(row, dict) and str(row.get("name", "")).startswith("__")


def answers(client: RawKafka) -> list[tuple[str, Any]]:
    found = []
    for request, version, kind in probes():
        label = f"{type(request).__name__} v{version}"
        found.append((label, judged(client.call(request, version, kind))))
    return found
