"""Consumer groups as the command line sees them, through confluent-kafka."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.broker.groups.reset_target import Extent, Move, Target, target_offset
from headrace.cli.administration import (
    GroupPartition,
    GroupState,
    GroupSummary,
    has_members,
    no_group,
    no_topic,
    nothing_committed,
)
from headrace.cli.kafka import TIMEOUT_SECONDS, calling, client_settings, raised, result_of

_NO_OFFSET: Final = -1
_DEAD: Final = "DEAD"
"""What Kafka calls a group that there is not."""

Place = tuple[str, int]


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
        if found.state.name == _DEAD:
            raise no_group(group)
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
        return result_of(future)

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

    def reset(self, group: str, topics: list[str], target: Target, value: int, *, is_dry: bool) -> list[Move]:
        moves = self._plan(group, topics, target, value)
        # Also said of a dry run, for this would become of the reset.
        if self._describe(group).members:
            raise has_members(group)
        if not is_dry:
            self._apply(group, moves)
        return moves

    def _plan(self, group: str, topics: list[str], target: Target, value: int) -> list[Move]:
        committed = self.committed(group)
        wanted = topics or sorted({topic for topic, _ in committed})
        if not wanted:
            raise nothing_committed(group)
        places = [place for topic in wanted for place in self._places(topic)]
        starts = self._offsets(places, OffsetSpec.earliest())
        ends = self._offsets(places, OffsetSpec.latest())
        times = self._offsets(places, OffsetSpec.for_timestamp(value)) if target is Target.TIME else {}
        moves = []
        for place in places:
            at_time = times.get(place, _NO_OFFSET)
            extent = Extent(
                start=starts[place],
                end=ends[place],
                committed=committed.get(place),
                at_time=None if at_time == _NO_OFFSET else at_time,
            )
            offset = target_offset(target, value, extent)
            moves.append(Move(topic=place[0], partition=place[1], committed=extent.committed, offset=offset))
        return moves

    def _apply(self, group: str, moves: list[Move]) -> None:
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
            raise no_topic(topic)
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
        return has_members(group)
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return no_group(group)
    return raised(error)
