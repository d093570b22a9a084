"""The route table is the support matrix: ApiVersions, the docs table and the tests are derived from it.

A `Route` decodes the request and encodes what its handler returns. A `DirectRoute` is for the few requests that make up
nearly all traffic: its handler reads the frame in place and fills the slot itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace.doors.connection import Blocked, Slot
from headrace.doors.kafka.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import RequestHeader
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.create_topics_request import CreateTopicsRequest
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest

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
    advertised_from: int | None = None


class DirectRoute(msgspec.Struct, frozen=True):
    key: ApiKey
    versions: Versions
    handle: DirectHandler
    advertised_from: int | None = None
    """First version that ApiVersions names, where it is lower than what we serve (trap 5)."""


AnyRoute = Route | DirectRoute


def route_table(*routes: AnyRoute) -> Mapping[int, AnyRoute]:
    table = {int(route.key): route for route in routes}
    assert len(table) == len(routes), "two routes for one key"
    return dict(sorted(table.items()))


ROUTES: Final = route_table(
    DirectRoute(ApiKey.PRODUCE, (3, 11), produce.handle, advertised_from=0),
    DirectRoute(ApiKey.FETCH, (4, 17), fetch.handle),
    Route(ApiKey.LIST_OFFSETS, (1, 10), ListOffsetsRequest, list_offsets.handle),
    DirectRoute(ApiKey.METADATA, (0, 13), metadata.handle),
    Route(ApiKey.FIND_COORDINATOR, (0, 5), FindCoordinatorRequest, find_coordinator.handle),
    Route(ApiKey.API_VERSIONS, (0, 4), ApiVersionsRequest, api_versions.handle),
    Route(ApiKey.CREATE_TOPICS, (2, 7), CreateTopicsRequest, create_topics.handle),
    Route(ApiKey.DELETE_TOPICS, (1, 6), DeleteTopicsRequest, delete_topics.handle),
    Route(ApiKey.INIT_PRODUCER_ID, (0, 5), InitProducerIdRequest, init_producer_id.handle),
    Route(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle),
    Route(ApiKey.DESCRIBE_CLUSTER, (0, 2), DescribeClusterRequest, describe_cluster.handle),
    Route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), DescribeTopicPartitionsRequest, describe_topic_partitions.handle),
)


def advertised_ranges() -> list[Range]:
    return [
        Range(key, route.versions[0] if route.advertised_from is None else route.advertised_from, route.versions[1])
        for key, route in ROUTES.items()
    ]
