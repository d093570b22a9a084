"""What a request of a JSON door needs the right to do: a column of its route table, asked before the handler is called.

These protocols have no word for "forbidden" that would not tell that there is something. So a topic that a client may not
describe is answered as one that there is not; what it may describe, and not do, is denied.
"""

from typing import NamedTuple

from headrace.broker.access.service import Guard
from headrace.broker.access.words import Operation, Resource
from headrace.errors import Denied, TopicNotFound


class Need(NamedTuple):
    """The right to do `operation` to what the request names in `field`; without a field, to the cluster."""

    operation: Operation
    resource: Resource
    field: str | None = None
    default: str = ""
    """The name where the request has none."""


def check(needs: tuple[Need, ...], request: object, guard: Guard) -> None:
    """Raises `TopicNotFound` or `Denied`."""
    for operation, resource, field, default in needs:
        name = None if field is None else getattr(request, field) or default
        if name is None:
            if not guard.may(operation, resource):
                raise Denied(f"not allowed to {operation.name} the {resource.name.lower()}")
        elif resource is Resource.TOPIC:
            # The handler says what is wrong with a name that is none.
            if name:
                check_topic(operation, name, guard)
        elif not guard.may(operation, resource, name):
            raise Denied(f"not allowed to {operation.name} {resource.name.lower()} '{name}'")


def check_topic(operation: Operation, name: str, guard: Guard) -> None:
    if guard.may_create_topic(name) if operation is Operation.CREATE else guard.may(operation, Resource.TOPIC, name):
        return
    if operation is not Operation.CREATE and not guard.sees(Operation.DESCRIBE, Resource.TOPIC, name):
        raise TopicNotFound(f"Topic '{name}' not found")
    raise Denied(f"not allowed to {operation.name} topic '{name}'")
