"""What a request needs the right to do: a column of the route table.

Each route names its needs, and the guard that asks for them. A guard stands before the handler: it takes out what the client may
not do, lets the handler do the rest, and puts refusals into the answer in their places. Handlers know nothing of rights, but
for the three that read their frames themselves (Produce, Fetch, Metadata), which ask in the midst of their work.

While nobody is asked anything (`security.authorization.enable` is off) no guard is called.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headrace.broker.access.words import Operation, Resource
from headrace.broker.deferred import Deferred
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message

Answer = Message | Awaitable[Message]
# Any: each route has its own request and response, and the table holds them all.
Proceed = Callable[[Any], Answer]
GuardFunction = Callable[[Any, int, Session, Proceed], Answer]

T = TypeVar("T")

REFUSED: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    operation: Operation
    resource: Resource


class Right(msgspec.Struct, frozen=True):
    """What is asked for, and by whom. Without a guard the handler itself asks."""

    needs: tuple[Need, ...]
    guard: GuardFunction | None = None


NOBODY_IS_ASKED: Final = Right(())
"""For what comes before anybody can have a right: which versions there are, and who somebody is."""


def right(*needs: tuple[Operation, Resource], guard: GuardFunction | None = None) -> Right:
    return Right(tuple(Need(*each) for each in needs), guard)


def whole(
    operation: Operation, resource: Resource, refuse: Callable[[Any, ErrorCode], Message], name: str | None = None
) -> Right:
    """One right for the whole request; `name` is the field that has the resource's, and the cluster has none."""

    def guard(request: Any, version: int, session: Session, proceed: Proceed) -> Answer:  # Any: as above
        is_allowed = (
            session.guard.may(operation, resource)
            if name is None
            else session.guard.may(operation, resource, getattr(request, name))
        )
        return proceed(request) if is_allowed else refuse(request, REFUSED[resource])

    return right((operation, resource), guard=guard)


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Those that are allowed, and those that are not."""
    allowed: list[T] = []
    refused: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else refused).append(item)
    return allowed, refused


def may_topic(session: Session, operation: Operation) -> Callable[[Any], bool]:  # Any: rows of many requests
    """For rows that have the name of a topic in `name`."""
    return lambda row: session.guard.may(operation, Resource.TOPIC, row.name)


def topic_name(session: Session, topic_id: bytes) -> str | None:
    topic = session.broker.topics.find_by_id(topic_id)
    return None if topic is None else topic.name


def completed(answer: Answer, complete: Callable[[Any], None]) -> Answer:
    """The answer, whenever it comes, with what `complete` adds to it."""
    if isinstance(answer, Message):
        complete(answer)
        return answer
    if isinstance(answer, Deferred):
        return _completed_later(answer, complete)
    return _completed_awaited(answer, complete)


def _completed_later(answer: Deferred[Message], complete: Callable[[Any], None]) -> Deferred[Message]:
    done: Deferred[Message] = Deferred()

    def settled(response: Deferred[Message]) -> None:
        try:
            message = response.result()
            complete(message)
        except Exception as error:
            done.reject(error)  # Whoever waits for it logs what nobody foresaw.
        else:
            done.resolve(message)

    answer.then(settled)
    return done


async def _completed_awaited(answer: Awaitable[Message], complete: Callable[[Any], None]) -> Message:
    message = await answer
    complete(message)
    return message
