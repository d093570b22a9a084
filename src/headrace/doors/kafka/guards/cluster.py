"""Requests about the cluster, and about the configs of anything."""

from typing import Any

from headrace.broker.access.words import Operation, Resource
from headrace.doors.kafka.config_changes import BROKER, GROUP, LOGGER, TOPIC, is_spoiled, is_this_broker, is_well_formed
from headrace.doors.kafka.rights import REFUSED, Answer, Proceed, completed, right, split, whole
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData
from headrace.wire.kafka.messages.alter_configs_response import AlterConfigsResourceResponse
from headrace.wire.kafka.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from headrace.wire.kafka.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.wire.kafka.messages.create_acls_request import CreateAclsRequest
from headrace.wire.kafka.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsRequest
from headrace.wire.kafka.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from headrace.wire.kafka.messages.describe_acls_response import DescribeAclsResponse
from headrace.wire.kafka.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from headrace.wire.kafka.messages.describe_configs_request import DescribeConfigsRequest
from headrace.wire.kafka.messages.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from headrace.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from headrace.wire.kafka.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headrace.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest
from headrace.wire.kafka.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse as IncrementalRow,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from headrace.wire.kafka.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from headrace.wire.kafka.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_MESSAGES = {
    Resource.TOPIC: "Topic authorization failed.",
    Resource.GROUP: "Group authorization failed.",
    Resource.CLUSTER: "Cluster authorization failed.",
}


def _resource_of(resource_type: int) -> Resource | None:
    """Whose right it takes to look at or change configs of this type; None for a type that nobody knows."""
    if resource_type == TOPIC:
        return Resource.TOPIC
    if resource_type == GROUP:
        return Resource.GROUP
    return Resource.CLUSTER if resource_type in (BROKER, LOGGER) else None


def _may_config(session: Session, operation: Operation, row: Any) -> bool:  # Any: a row of any of the three requests
    if operation is Operation.ALTER_CONFIGS and row.resource_type == BROKER and not is_this_broker(row, session):
        return True  # Changes nothing: as in Kafka, whose broker this is not is asked before rights are.
    match _resource_of(row.resource_type):
        case None:
            return True  # The handler says what is wrong with it.
        case Resource.CLUSTER:
            return session.guard.may(operation, Resource.CLUSTER)
        case resource:
            return session.guard.may(operation, resource, row.resource_name)


def _describe_configs(request: DescribeConfigsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if is_spoiled(request.resources):
        return proceed(request)  # None of it is answered.
    request.resources, refused = split(
        request.resources, lambda row: _may_config(session, Operation.DESCRIBE_CONFIGS, row)
    )

    def complete(response: DescribeConfigsResponse) -> None:
        for row in refused:
            resource = _resource_of(row.resource_type) or Resource.CLUSTER
            response.results.append(
                DescribeConfigsResult(
                    error_code=REFUSED[resource],
                    error_message=_MESSAGES[resource],
                    resource_type=row.resource_type,
                    resource_name=row.resource_name,
                )
            )

    return completed(proceed(request), complete)


def _alter_configs(request: Any, version: int, session: Session, proceed: Proceed) -> Answer:
    """Both requests that change configs; their rows and answers are alike. Any: either of the two."""
    rows = request.resources
    request.resources, refused = split(
        rows, lambda row: not is_well_formed(row, rows) or _may_config(session, Operation.ALTER_CONFIGS, row)
    )

    def complete(response: Any) -> None:
        # Alike, but not the same: each is written by its own version's rules.
        is_incremental = isinstance(response, IncrementalAlterConfigsResponse)
        refusal = IncrementalRow if is_incremental else AlterConfigsResourceResponse
        for row in refused:
            resource = _resource_of(row.resource_type) or Resource.CLUSTER
            response.responses.append(
                refusal(REFUSED[resource], _MESSAGES[resource], row.resource_type, row.resource_name)
            )

    return completed(proceed(request), complete)


def _refuse_election(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic.topic, [PartitionResult(index, code, _MESSAGES[Resource.CLUSTER]) for index in topic.partitions]
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _refuse_reassignments(
    request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=_MESSAGES[Resource.CLUSTER],
        topics=[
            OngoingTopicReassignment(
                topic.name, [OngoingPartitionReassignment(each) for each in topic.partition_indexes]
            )
            for topic in request.topics or ()
        ],
    )


def _refuse_rules(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, _MESSAGES[Resource.CLUSTER]) for _ in request.creations])


def _refuse_users(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user, code, _MESSAGES[Resource.CLUSTER]) for user in users]
    )


def _refuse_filters(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    rows = [DeleteAclsFilterResult(code, _MESSAGES[Resource.CLUSTER]) for _ in request.filters]
    return DeleteAclsResponse(filter_results=rows)


DESCRIBE_CONFIGS = right(
    (Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
    (Operation.DESCRIBE_CONFIGS, Resource.GROUP),
    (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
    guard=_describe_configs,
)
ALTER_CONFIGS = right(
    (Operation.ALTER_CONFIGS, Resource.TOPIC),
    (Operation.ALTER_CONFIGS, Resource.GROUP),
    (Operation.ALTER_CONFIGS, Resource.CLUSTER),
    guard=_alter_configs,
)
DESCRIBE_LOG_DIRS = whole(
    Operation.DESCRIBE, Resource.CLUSTER, lambda _, code: DescribeLogDirsResponse(error_code=code)
)
ELECT_LEADERS = whole(Operation.ALTER, Resource.CLUSTER, _refuse_election)
LIST_PARTITION_REASSIGNMENTS = whole(Operation.DESCRIBE, Resource.CLUSTER, _refuse_reassignments)
DESCRIBE_CLUSTER = right((Operation.DESCRIBE, Resource.CLUSTER))
"""Asked by the handler, and only for the field that says what may be done."""
DESCRIBE_ACLS = whole(
    Operation.DESCRIBE,
    Resource.CLUSTER,
    lambda _, code: DescribeAclsResponse(error_code=code, error_message=_MESSAGES[Resource.CLUSTER]),
)
DESCRIBE_USERS = whole(
    Operation.DESCRIBE,
    Resource.CLUSTER,
    lambda request, code: DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=_MESSAGES[Resource.CLUSTER],
        results=[
            DescribeUserScramCredentialsResult(error_code=code, error_message=_MESSAGES[Resource.CLUSTER])
            for _ in request.users or ()
        ],
    ),
)
ALTER_USERS = whole(Operation.ALTER, Resource.CLUSTER, _refuse_users)
CREATE_ACLS = whole(Operation.ALTER, Resource.CLUSTER, _refuse_rules)
DELETE_ACLS = whole(Operation.ALTER, Resource.CLUSTER, _refuse_filters)
DESCRIBE_QUOTAS = whole(
    Operation.DESCRIBE_CONFIGS,
    Resource.CLUSTER,
    lambda _, code: DescribeClientQuotasResponse(
        error_code=code, error_message=_MESSAGES[Resource.CLUSTER], entries=None
    ),
)
ALTER_QUOTAS = whole(
    Operation.ALTER_CONFIGS,
    Resource.CLUSTER,
    lambda request, code: AlterClientQuotasResponse(
        entries=[
            EntryData(
                code,
                _MESSAGES[Resource.CLUSTER],
                [EntityData(each.entity_type, each.entity_name) for each in row.entity],
            )
            for row in request.entries
        ]
    ),
)
