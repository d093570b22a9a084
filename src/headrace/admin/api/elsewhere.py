"""What another broker of the cluster has, and where its API and console are. On a node that is alone, nothing."""

import msgspec

from headrace.admin.api.calls import Call
from headrace.broker.identity import Identity
from headrace.broker.topics import Topic
from headrace.errors import Elsewhere, NotCoordinator

_ANY_GROUP = ""
"""One broker looks after all groups: whichever is asked for, it is the same."""


class LedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of a topic that another broker leads."""

    broker: str
    """Empty: nobody leads them."""
    number: int
    """Kafka's node id; -1 while it serves nobody."""
    admin: str
    """`host:port` of its API and console; empty where none is known."""
    partitions: list[int]


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


async def require_groups_here(call: Call) -> None:
    """Raise `NotCoordinator` where another broker looks after groups: here nothing is known of them."""
    groups = call.broker.groups
    if not call.broker.identity.registered() or groups.is_home:
        return
    leader = await groups.leader_of(_ANY_GROUP)
    if leader != call.broker.identity.broker_name:
        raise NotCoordinator(f"groups are looked after by {leader or 'nobody'}", broker=leader)


def hint_of(error: BaseException, identity: Identity, listener: str) -> str | None:
    """Whom to ask instead: `host:port` of the listener of whoever has it."""
    if not isinstance(error, Elsewhere) or error.broker in ("", identity.broker_name):
        return None
    return identity.address_of(error.broker, listener) or None
