"""Changes by Kafka's requests as the audit keeps them: who has changed what, from what to what. Durable before the answer.

A row of a request that was refused is no change; a refusal for want of a right is noted where rights are asked for. Rules, users and
quotas are noted by access itself, for every door. What was before is looked at when the request comes in, what is after when
it has been answered: a change that somebody else makes in between is in the events of both.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from headrace.broker.access.audit import ITEMS_MAX, Audit
from headrace.doors.kafka.config_changes import GROUP, TOPIC
from headrace.doors.kafka.session import Session
from headrace.ids import NO_TOPIC_ID, show_topic_id
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.message import Message

Answer = Message | Awaitable[Message]
Handle = Callable[..., Answer]
Place = tuple[str, ...]
"""What a change is about, by names."""
Rows = Iterable[Any]  # Any: rows of any request, and JSON below


class Kind(msgspec.Struct, frozen=True):
    """How the changes of one request are found."""

    change: str
    """As the administrative API calls it; `{0}` is the first part of the place."""
    words: tuple[str, ...]
    """What each part of a place is called."""
    asked: Callable[[Any, Session], Iterator[Place]]
    state: Callable[[Place, Session], Any]
    done: Callable[[Any, Any], Iterator[Place]]
    """Of the request and its answer: what has been changed."""


def noted(key: ApiKey, handle: Handle, request: Any, version: int, session: Session) -> Answer:
    """The answer of `handle`, once what it tells of is kept."""
    audit = session.broker.access.audit
    kind = NOTED.get(key)
    if audit is None or kind is None or getattr(request, "validate_only", False):
        return handle(request, version, session)
    return _noted(audit, kind, handle, request, version, session)


async def _noted(audit: Audit, kind: Kind, handle: Handle, request: Any, version: int, session: Session) -> Message:
    names = _names_of_ids(request, session)
    before = {place: kind.state(place, session) for place in kind.asked(request, session)}
    answer = handle(request, version, session)
    response = answer if isinstance(answer, Message) else await answer
    for place in dict.fromkeys(kind.done(request, response)):
        named = (names.get(place[0], place[0]), *place[1:])
        what = {
            "change": kind.change.format(*named),
            "request": dict(zip(kind.words, named, strict=True)),
            "before": before.get(named),
            "after": kind.state(named, session),
        }
        audit.administered(session.guard.principal, session.guard.host, what)
    await audit.settled()
    return response


def _names_of_ids(request: Any, session: Session) -> Mapping[str, str]:
    """Topics that the request names by id, which the answer may do without a name."""
    ids = [getattr(each, "topic_id", NO_TOPIC_ID) for each in getattr(request, "topics", ())]
    found = ((each, session.broker.topics.find_by_id(each)) for each in ids)
    return {_shown(topic_id): topic.name for topic_id, topic in found if topic is not None}


def _shown(topic_id: bytes) -> str:
    return f"id {bytes(topic_id).hex()}"


# -- what is looked at


def _topic(place: Place, session: Session) -> Any:
    topic = session.broker.topics.find(place[0])
    if topic is None:
        return None
    return {"id": show_topic_id(topic.id), "partitions": len(topic.partitions), "config": dict(topic.overrides)}


def _partition_count(place: Place, session: Session) -> Any:
    topic = session.broker.topics.find(place[0])
    return None if topic is None else len(topic.partitions)


def _log_start(place: Place, session: Session) -> Any:
    topic, index = session.broker.topics.find(place[0]), int(place[1])
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index].log_start


def _overrides(place: Place, session: Session) -> Any:
    kind, name = place
    if kind == "Group":
        return dict(session.broker.groups.configs.overrides_of(name))
    topic = session.broker.topics.find(name)
    return None if topic is None else dict(topic.overrides)


def _group_offsets(place: Place, session: Session) -> Any:
    """As many as an event shows."""
    found = islice(session.broker.offsets.all_of(place[0]).items(), ITEMS_MAX + 1)
    return {f"{topic}-{partition}": each.offset for (topic, partition), each in found}


def _group_offset(place: Place, session: Session) -> Any:
    found = session.broker.offsets.all_of(place[0]).get((place[1], int(place[2])))
    return None if found is None else found.offset


# -- what requests ask for, and what answers say was done


def _named(rows: Rows) -> Iterator[Place]:
    for row in rows:
        if not getattr(row, "error_code", 0):
            yield (row.name,)


def _asked_to_delete(request: Any, session: Session) -> Iterator[Place]:
    names = _names_of_ids(request, session)
    yield from ((name,) for name in (*request.topic_names, *names.values()))
    yield from ((each.name,) for each in request.topics if each.name is not None)


def _deleted(_: Any, response: Any) -> Iterator[Place]:
    for row in response.responses:
        if not row.error_code:
            yield (row.name if row.name is not None else _shown(row.topic_id),)


def _partitions(rows: Rows) -> Iterator[Place]:
    for topic in rows:
        for row in topic.partitions:
            if not getattr(row, "error_code", 0):
                yield (topic.name, str(row.partition_index))


def _configured(rows: Rows) -> Iterator[Place]:
    kinds = {TOPIC: "Topic", GROUP: "Group"}
    for row in rows:
        if row.resource_type in kinds and not getattr(row, "error_code", 0):
            yield (kinds[row.resource_type], row.resource_name)


def _deleted_groups(_: Any, response: Any) -> Iterator[Place]:
    yield from ((row.group_id,) for row in response.results if not row.error_code)


def _deleted_offsets(request: Any, response: Any) -> Iterator[Place]:
    if not response.error_code:
        yield from ((request.group_id, *place) for place in _partitions(response.topics))


_UPDATED: Final = Kind(
    "Update{0}Config",
    ("kind", "name"),
    lambda request, _: _configured(request.resources),
    _overrides,
    lambda _, response: _configured(response.responses),
)
NOTED: Final[Mapping[ApiKey, Kind]] = {
    ApiKey.CREATE_TOPICS: Kind(
        "CreateTopic",
        ("name",),
        lambda request, _: _named(request.topics),
        _topic,
        lambda _, response: _named(response.topics),
    ),
    ApiKey.DELETE_TOPICS: Kind("DeleteTopic", ("name",), _asked_to_delete, _topic, _deleted),
    ApiKey.CREATE_PARTITIONS: Kind(
        "GrowTopic",
        ("name",),
        lambda request, _: _named(request.topics),
        _partition_count,
        lambda _, response: _named(response.results),
    ),
    ApiKey.DELETE_RECORDS: Kind(
        "DeleteRecords",
        ("name", "partition"),
        lambda request, _: _partitions(request.topics),
        _log_start,
        lambda _, response: _partitions(response.topics),
    ),
    ApiKey.ALTER_CONFIGS: _UPDATED,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _UPDATED,
    ApiKey.DELETE_GROUPS: Kind(
        "DeleteGroup",
        ("group",),
        lambda request, _: ((name,) for name in request.groups_names),
        _group_offsets,
        _deleted_groups,
    ),
    ApiKey.OFFSET_DELETE: Kind(
        "DeleteOffset",
        ("group", "topic", "partition"),
        lambda request, _: ((request.group_id, *place) for place in _partitions(request.topics)),
        _group_offset,
        _deleted_offsets,
    ),
}
