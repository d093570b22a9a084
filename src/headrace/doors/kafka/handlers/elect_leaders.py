"""ElectLeaders, v0-v2. One broker leads everything: an election is never needed."""

from typing import Final

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest
from headrace.wire.kafka.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTIONS: Final = (0, 1)
"""Of the preferred leader, and unclean ones."""


def handle(request: ElectLeadersRequest, version: int, session: Session) -> ElectLeadersResponse:
    if request.topic_partitions and request.election_type not in _ELECTIONS:
        return _refused(request)
    if request.topic_partitions is None:
        # "Wherever it is needed" is nowhere, and then Kafka names the topics and none of their partitions.
        every = session.broker.topics.all()
        return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(each.name, []) for each in every])
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic.topic, [_result(topic.topic, index, session) for index in topic.partitions])
            for topic in request.topic_partitions
        ]
    )


def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    code, message = ErrorCode.INVALID_REQUEST, f"no election of type {request.election_type}"
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(topic.topic, [PartitionResult(index, code, message) for index in topic.partitions])
            for topic in request.topic_partitions or ()
        ],
    )


def _result(topic: str, index: int, session: Session) -> PartitionResult:
    if not session.broker.topics.has_partition(topic, index):
        message = "This server does not host this topic-partition."
        return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
