"""ListPartitionReassignments, v0. Nothing is ever being reassigned on one node."""

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from headrace.wire.kafka.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse


def handle(
    request: ListPartitionReassignmentsRequest, version: int, session: Session
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
