"""The cluster and its brokers. On one node the cluster is this broker; what needs a balancer says that it is not available yet."""

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.elsewhere import with_other_groups
from headrace.admin.session import Health
from headrace.broker.broker_watch import ControllerSeen
from headrace.broker.identity import NOBODY, BrokerRegistration, state_of
from headrace.errors import ResourceNotFound, UnsupportedOperation


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks without saying anything more."""


class ClusterDetail(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller: int
    brokers: int
    topics: int
    partitions: int
    groups: int | None
    """None where another broker looks after them."""
    version: str
    object_store: str
    data_dir: str
    controllers: list[ControllerSeen] = []
    """Processes that decide who leads, as of the last 15 s. None on a node that is alone: it decides for itself."""
    without_leader: int = 0
    """Partitions that nobody serves: their leader is away, or they have none."""


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    number: int
    """Kafka's node id."""
    host: str
    port_quic: int | None
    """None while the node has no such listener."""
    port_rpc: int | None
    rack_id: str | None
    online: bool
    """Looked at every 15 s; false after 30 s of silence, and at once when controllers have fenced it."""
    epoch: int
    doors: dict[str, str]
    partitions: int
    """That it leads."""
    state: str = "active"
    """As controllers see it: `starting`, `active`, `draining`, `drained` or `fenced`."""
    is_this: bool = True
    """Whether it is the broker that answers."""


class BrokerList(msgspec.Struct, frozen=True, kw_only=True):
    brokers: list[BrokerRow]


class DrainBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    broker: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    dry_run: bool = False


class TriggerRebalance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False


async def describe_cluster(request: Nothing, call: Call) -> ClusterDetail:
    identity = call.broker.identity
    led = await _led(call)
    is_elsewhere = bool(with_other_groups(call))
    return ClusterDetail(
        cluster_id=identity.cluster_id,
        controller=identity.broker_id,
        brokers=len({identity.broker_name, *identity.registered()}),
        topics=len(call.broker.topics.by_name),
        partitions=sum(led.values()),
        groups=None if is_elsewhere else len(call.broker.offsets.groups()),
        version=call.parts.health().version,
        object_store=identity.bucket,
        data_dir=identity.data_dir,
        controllers=list(call.parts.watch.controllers),
        without_leader=sum(count for name, count in led.items() if identity.number_of(name) == NOBODY),
    )


async def list_brokers(request: Nothing, call: Call) -> BrokerList:
    identity, led = call.broker.identity, await _led(call)
    rows = [_this(call, led.get(identity.broker_name, 0))]
    for name, each in identity.registered().items():
        if name != identity.broker_name:
            rows.append(_other(name, each, call, led.get(name, 0)))
    return BrokerList(brokers=sorted(rows, key=lambda row: row.number))


def _this(call: Call, led: int) -> BrokerRow:
    identity, health = call.broker.identity, call.parts.health()
    host, _ = identity.addresses.get("kafka", ("localhost", 0))
    registered = identity.registered().get(identity.broker_name)
    return BrokerRow(
        id=identity.broker_name,
        number=identity.broker_id,
        host=host,
        port_quic=identity.addresses["quic"][1] if "quic" in identity.addresses else None,
        port_rpc=None,
        rack_id=identity.rack,
        # It answers, so it is here.
        online=health.is_ready,
        epoch=identity.broker_epoch,
        doors=health.doors,
        partitions=led,
        state="active" if registered is None else state_of(registered),
    )


def _other(name: str, registered: BrokerRegistration, call: Call, led: int) -> BrokerRow:
    return BrokerRow(
        id=name,
        number=registered.numeric_id,
        host=registered.host,
        port_quic=registered.port_quic or None,
        port_rpc=registered.port_rpc or None,
        rack_id=registered.rack_id or None,
        online=call.parts.watch.is_online(name),
        epoch=registered.broker_epoch,
        doors=dict(sorted(registered.advertised.items())),
        partitions=led,
        state=state_of(registered),
        is_this=False,
    )


async def _led(call: Call) -> Counter[str]:
    """How many partitions each broker leads, by name."""
    topics, led = list(call.broker.topics.by_name.values()), Counter[str]()
    async for chunk in call.turns.chunks(name for topic in topics for name in topic.leaders):
        led.update(chunk)
    return led


async def describe_health(request: Nothing, call: Call) -> Health:
    return call.parts.health()


async def drain_broker(request: DrainBroker, call: Call) -> ClusterDetail:
    numbers = {each.numeric_id for each in call.broker.identity.registered().values()}
    if request.broker not in {call.broker.identity.broker_id, *numbers}:
        raise ResourceNotFound(f"no broker {request.broker}")
    raise UnsupportedOperation(
        "drain is not available yet; a broker that is stopped moves what it leads to others first"
    )


async def trigger_rebalance(request: TriggerRebalance, call: Call) -> ClusterDetail:
    raise UnsupportedOperation("rebalance is not available yet: there is no balancer")
