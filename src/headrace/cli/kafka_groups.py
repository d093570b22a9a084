"""Consumer groups as the command line sees them, through confluent-kafka."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.cli.kafka import TIMEOUT_SECONDS, calling, client_settings, raised, result_of
from headrace.errors import GroupNotFound, Invalid, NotEmpty, TopicNotFound

_NO_OFFSET: Final = -1

Place = tuple[str, int]


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    type: str


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    """None: the topic or partition is gone, and who reads it has not noticed yet."""
    lag: int | None
    member: str | None
    client: str | None


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    type: str
    assignor: str
    members: int
    partitions: list[GroupPartition]


class Target(Enum):
    """Where a reset moves to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a reset."""

    topic: str
    partition: int
    committed: int | None
    offset: int


class GroupAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient(client_settings(bootstrap))

    def summaries(self) -> list[GroupSummary]:
        found = result_of(self._client.list_consumer_groups(request_timeout=TIMEOUT_SECONDS))
        if found.errors:
            # A node that does not answer is an entry here, not an exception.
            raise raised(found.errors[0])
        return [
            GroupSummary(group=each.group_id, state=each.state.name.lower(), type=each.type.name.lower())
            for each in sorted(found.valid, key=lambda each: str(each.group_id))
        ]

    def describe(self, group: str) -> GroupState:
        found = self._describe(group)
        committed = self.committed(group)
        owners = {
            (place.topic, place.partition): member
            for member in found.members
            for place in (member.assignment.topic_partitions if member.assignment else ())
        }
        places = sorted({*committed, *owners})
        ends = self._offsets(self._existing(places), OffsetSpec.latest())
        return GroupState(
            group=group,
            state=found.state.name.lower(),
            type=found.type.name.lower(),
            assignor=found.partition_assignor or "",
            members=len(found.members),
            partitions=[
                _partition(place, committed.get(place), ends.get(place), owners.get(place)) for place in places
            ],
        )

    def _describe(self, group: str) -> Any:  # Any: confluent-kafka ships no types
        (future,) = self._client.describe_consumer_groups([group], request_timeout=TIMEOUT_SECONDS).values()
        found = result_of(future)
        if found.state.name == "DEAD":
            raise GroupNotFound(f"no group {group!r}")
        return found

    def committed(self, group: str) -> dict[Place, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        (future,) = self._client.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_SECONDS).values()
        return {
            (each.topic, each.partition): each.offset for each in result_of(future).topic_partitions if each.offset >= 0
        }

    def delete(self, group: str) -> None:
        (future,) = self._client.delete_consumer_groups([group], request_timeout=TIMEOUT_SECONDS).values()
        try:
            future.result(TIMEOUT_SECONDS * 2)
        except KafkaException as error:
            raise _group_error(group, error.args[0]) from error

    def plan_reset(self, group: str, topics: list[str], target: Target, value: int) -> list[Move]:
        """Where each partition would go: what a dry run shows and `apply` does."""
        committed = self.committed(group)
        wanted = topics or sorted({topic for topic, _ in committed})
        if not wanted:
            raise Invalid(f"group {group!r} has committed nothing yet; name the topics with --topic")
        places = [place for topic in wanted for place in self._places(topic)]
        starts = self._offsets(places, OffsetSpec.earliest())
        ends = self._offsets(places, OffsetSpec.latest())
        offset_of = self._mover(places, committed, target, value, starts=starts, ends=ends)
        return [
            Move(
                topic=place[0],
                partition=place[1],
                committed=committed.get(place),
                offset=min(max(offset_of(place), starts[place]), ends[place]),
            )
            for place in places
        ]

    def _mover(
        self,
        places: list[Place],
        committed: Mapping[Place, int],
        target: Target,
        value: int,
        *,
        starts: Mapping[Place, int],
        ends: Mapping[Place, int],
    ) -> Callable[[Place], int]:
        match target:
            case Target.EARLIEST:
                return starts.__getitem__
            case Target.LATEST:
                return ends.__getitem__
            case Target.OFFSET:
                return lambda place: value
            case Target.SHIFT:
                return lambda place: committed.get(place, starts[place]) + value
            case Target.TIME:
                found = self._offsets(places, OffsetSpec.for_timestamp(value))
                # No record as late as that: everything before it has been read.
                return lambda place: found[place] if found[place] != _NO_OFFSET else ends[place]

    def apply(self, group: str, moves: list[Move]) -> None:
        places = [TopicPartition(move.topic, move.partition, move.offset) for move in moves]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        (future,) = self._client.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_SECONDS).values()
        try:
            found = future.result(TIMEOUT_SECONDS * 2)
        except KafkaException as error:
            raise _group_error(group, error.args[0]) from error
        for place in found.topic_partitions:
            if place.error is not None:
                raise _group_error(group, place.error)

    def _existing(self, places: list[Place]) -> list[Place]:
        topics = self._topics()
        return [(topic, index) for topic, index in places if topic in topics and index in topics[topic].partitions]

    def _places(self, topic: str) -> list[Place]:
        found = self._topics().get(topic)
        if found is None:
            raise TopicNotFound(f"no topic {topic!r}")
        return [(topic, index) for index in sorted(found.partitions)]

    def _topics(self) -> Mapping[str, Any]:  # Any: confluent-kafka ships no types
        """All of them: this client lets the node create a topic that is asked for by name."""
        topics: Mapping[str, Any] = calling(lambda: self._client.list_topics(timeout=TIMEOUT_SECONDS)).topics
        return topics

    def _offsets(self, places: list[Place], spec: Any) -> dict[Place, int]:  # Any: as above
        if not places:
            return {}
        asked = {TopicPartition(topic, index): spec for topic, index in places}
        futures = self._client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
        return {(place.topic, place.partition): result_of(future).offset for place, future in futures.items()}


def _partition(place: Place, committed: int | None, end: int | None, member: Any) -> GroupPartition:  # Any: as above
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed=committed,
        end=end,
        lag=None if committed is None or end is None else max(end - committed, 0),
        member=None if member is None else member.member_id,
        client=None if member is None else member.client_id,
    )


def _group_error(group: str, error: KafkaError) -> Exception:
    if error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
        return NotEmpty(f"group {group!r} has members: stop them first")
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return GroupNotFound(f"no group {group!r}")
    return raised(error)
