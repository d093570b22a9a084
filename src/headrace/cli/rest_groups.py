"""Consumer groups over the REST API: the port of `administration`, for who has a token and cannot reach the Kafka door."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from headrace.broker.groups.reset_target import Move, Target
from headrace.cli.administration import (
    GroupPartition,
    GroupState,
    GroupSummary,
    has_members,
    no_group,
    no_topic,
    nothing_committed,
)
from headrace.cli.rest import RestClient
from headrace.errors import GroupNotFound, NotEmpty, TopicNotFound

_STATES: Final = {"PreparingRebalance": "preparing_rebalancing", "CompletingRebalance": "completing_rebalancing"}
"""What Kafka's client calls them. States that it has no word for it calls unknown, and here they have their names."""


class RestGroupAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def summaries(self) -> list[GroupSummary]:
        return [
            GroupSummary(group=row["group"], state=_state(row["state"]), type=row["kind"])
            for page in self._client.pages("groups")
            for row in page["groups"]
        ]

    def describe(self, group: str) -> GroupState:
        with _named(group):
            found = self._client.get("groups", group)
        clients = {member["member_id"]: member["client_id"] for member in found["members"]}
        return GroupState(
            group=group,
            state=_state(found["state"]),
            type=found["kind"],
            assignor=found["protocol"],
            members=len(found["members"]),
            partitions=[_partition(row, clients) for row in found["partitions"]],
        )

    def reset(self, group: str, topics: list[str], target: Target, value: int, *, is_dry: bool) -> list[Move]:
        body = {"target": target.value, "value": value, "topics": topics}
        if not topics and not self._has_committed(group):
            raise nothing_committed(group)
        for topic in topics:
            self._require_topic(topic)
        with _named(group):
            plan = self._client.post("groups", group, "reset", body=body, query="dry_run=true" if is_dry else "")
        return [msgspec.convert(move, Move) for move in plan["moves"]]

    def _has_committed(self, group: str) -> bool:
        try:
            return any(row["committed"] is not None for row in self._client.get("groups", group)["partitions"])
        except GroupNotFound:
            return False

    def _require_topic(self, name: str) -> None:
        try:
            self._client.get("topics", name)
        except TopicNotFound as error:
            raise no_topic(name) from error

    def delete(self, group: str) -> None:
        with _named(group):
            self._client.delete("groups", group)


def _partition(row: Mapping[str, Any], clients: Mapping[str, str]) -> GroupPartition:  # Any: JSON
    member = row["member_id"]
    return GroupPartition(
        topic=row["topic"],
        partition=row["partition"],
        committed=row["committed"],
        end=row["end_offset"],
        lag=row["lag"],
        member=member,
        client=None if member is None else clients.get(member),
    )


def _state(word: str) -> str:
    return _STATES.get(word, word.lower())


@contextmanager
def _named(group: str) -> Iterator[None]:
    try:
        yield
    except GroupNotFound as error:
        raise no_group(group) from error
    except NotEmpty as error:
        raise has_members(group) from error
