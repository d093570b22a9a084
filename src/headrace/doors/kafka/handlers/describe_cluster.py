"""DescribeCluster, v0-v2. The brokers are asked for (endpoint type 1); controllers have no listener of their own yet."""

from typing import Final

from headrace.doors.kafka.handlers.metadata import cluster_operations
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from headrace.wire.kafka.metadata import UNKNOWN_OPERATIONS

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, version: int, session: Session) -> DescribeClusterResponse:
    identity = session.broker.identity
    if version >= 1 and request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == _CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this listener belongs to a broker",
            endpoint_type=_BROKERS,
            cluster_id=identity.cluster_id,
        )
    return DescribeClusterResponse(
        cluster_id=identity.cluster_id,
        controller_id=identity.broker_id,
        brokers=[DescribeClusterBroker(*each) for each in identity.members(session.listener, session.advertised)],
        cluster_authorized_operations=cluster_operations(session)
        if request.include_cluster_authorized_operations
        else UNKNOWN_OPERATIONS,
    )
