"""OffsetFetch, v1-v10.

- Topics null is everything the group has committed (v2 on). Nothing committed is offset -1 without an error.
- `require_stable` (v7 on) refuses, partition by partition, what an open transaction may still change (trap 29).
- From v8 several groups are asked for at once; from v9 a KIP-848 member says who it is; from v10 topics have ids.
"""

from typing import Final

from headrace.broker.groups.outcome import GroupError
from headrace.broker.offsets import CommittedOffset, Place
from headrace.doors.kafka.coordination import by_topic, coordinator_code, group_code
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, NotCoordinator
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.kafka.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_BATCHED_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NOTHING: Final = CommittedOffset(offset=-1)


def handle(request: OffsetFetchRequest, version: int, session: Session) -> OffsetFetchResponse:
    if version >= _BATCHED_FROM:
        groups = [_fetch_group(group, version, session, is_stable=request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    wanted = {topic.name: topic.partition_indexes for topic in request.topics or ()}
    try:
        group = _Group(request.group_id, session, is_stable=request.require_stable)
    except (CoordinatorLoading, NotCoordinator) as error:
        return _refused(wanted, coordinator_code(error))
    if request.topics is None:
        wanted = group.everything()
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name, [_single(group, (name, index)) for index in indexes])
            for name, indexes in wanted.items()
        ]
    )


def _refused(wanted: dict[str, list[int]], code: ErrorCode) -> OffsetFetchResponse:
    """Said twice: v1 has an error only for each partition."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(i, -1, -1, "", code) for i in indexes])
            for name, indexes in wanted.items()
        ],
    )


class _Group:
    """What one group has committed, and what of it may still change."""

    def __init__(self, group_id: str, session: Session, *, is_stable: bool) -> None:
        self.offsets = session.broker.offsets.all_of(group_id)
        self._undecided = session.broker.offsets.undecided(group_id) if is_stable else set()

    def find(self, place: Place) -> tuple[CommittedOffset, ErrorCode]:
        if place in self._undecided:
            return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self.offsets.get(place, _NOTHING), ErrorCode.NONE

    def everything(self) -> dict[str, list[int]]:
        """Where it has committed something: what is only on its way is nothing to list, as in Kafka."""
        return by_topic({*self.offsets})


def _fetch_group(
    request: OffsetFetchRequestGroup, version: int, session: Session, *, is_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        error = session.broker.groups.check_reader(request.group_id, request.member_id, request.member_epoch)
    except (CoordinatorLoading, NotCoordinator) as loading:
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=coordinator_code(loading))
    if error is not GroupError.NONE:
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=group_code(error))
    group = _Group(request.group_id, session, is_stable=is_stable)
    topics = session.broker.topics
    rows: list[OffsetFetchResponseTopics] = []
    if request.topics is None:
        for name, indexes in group.everything().items():
            topic = topics.find(name)
            topic_id = bytes(16) if topic is None else topic.id
            rows.append(OffsetFetchResponseTopics(name, topic_id, [_one(group, (name, i)) for i in indexes]))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=rows)
    for wanted in request.topics:
        name = wanted.name
        code = ErrorCode.NONE
        if version >= _TOPIC_IDS_FROM:
            found = topics.find_by_id(wanted.topic_id)
            name = "" if found is None else found.name
            code = ErrorCode.UNKNOWN_TOPIC_ID if found is None else ErrorCode.NONE
        partitions = [_one(group, (name, index), code) for index in wanted.partition_indexes]
        rows.append(OffsetFetchResponseTopics(wanted.name, wanted.topic_id, partitions))
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=rows)


def _one(group: _Group, place: Place, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    committed, error = group.find(place)
    return OffsetFetchResponsePartitions(
        place[1], committed.offset, committed.leader_epoch, committed.metadata, code or error
    )


def _single(group: _Group, place: Place) -> OffsetFetchResponsePartition:
    committed, error = group.find(place)
    return OffsetFetchResponsePartition(place[1], committed.offset, committed.leader_epoch, committed.metadata, error)
