"""What another broker of the cluster has, and where its API and console are. On a node that is alone, nothing."""

from collections.abc import Callable, Iterable

import msgspec

from headrace.admin.api.calls import Call
from headrace.broker.identity import Identity
from headrace.broker.topics import Topic
from headrace.errors import Elsewhere, NotCoordinator


class LedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of a topic that another broker leads."""

    broker: str
    """Empty: nobody leads them."""
    number: int
    """Kafka's node id; -1 while it serves nobody."""
    admin: str
    """`host:port` of its API and console; empty where none is known."""
    partitions: list[int]


class OtherBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that has more of what a list shows."""

    broker: str
    admin: str
    """`host:port` of its API and console; empty where none is known."""


async def led_elsewhere(topic: Topic, call: Call) -> list[LedElsewhere]:
    identity = call.broker.identity
    by_leader: dict[str, list[int]] = {}
    async for chunk in call.turns.chunks(list(topic.partitions)):
        for partition in chunk:
            if partition.removed:
                by_leader.setdefault(topic.leaders[partition.index], []).append(partition.index)
    return [
        LedElsewhere(
            broker=name,
            number=identity.number_of(name),
            admin=identity.address_of(name, "admin"),
            partitions=partitions,
        )
        for name, partitions in sorted(by_leader.items())
    ]


async def require_group_here(group: str, call: Call) -> None:
    """Raise `NotCoordinator` where another broker looks after the group: here nothing is known of it."""
    if not call.broker.identity.registered():
        return
    leader = await call.broker.groups.leader_of(group)
    if leader != call.broker.identity.broker_name:
        raise NotCoordinator(f"group {group!r} is looked after by {leader or 'nobody'}", broker=leader)


def with_other_groups(call: Call) -> frozenset[str]:
    """Brokers that look after groups of which nothing is known here."""
    return _others(lambda: call.broker.groups.leaders(), call)


def with_other_transactions(call: Call) -> frozenset[str]:
    """Brokers that coordinate transactions of which nothing is known here."""
    return _others(lambda: call.broker.transactions.leaders(), call)


def _others(leaders: Callable[[], frozenset[str]], call: Call) -> frozenset[str]:
    identity = call.broker.identity
    return leaders() - {"", identity.broker_name} if identity.registered() else frozenset()


def shown(brokers: Iterable[str], call: Call) -> list[OtherBroker]:
    """With the way there."""
    identity = call.broker.identity
    return [OtherBroker(broker=name, admin=identity.address_of(name, "admin")) for name in sorted(brokers)]


def hint_of(error: BaseException, identity: Identity, listener: str) -> str | None:
    """Whom to ask instead: `host:port` of the listener of whoever has it."""
    if not isinstance(error, Elsewhere) or error.broker in ("", identity.broker_name):
        return None
    return identity.address_of(error.broker, listener) or None
