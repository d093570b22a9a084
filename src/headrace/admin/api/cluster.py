"""The cluster and its brokers. On one node the cluster is this broker, and what needs more says that it is not available."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.session import Health
from headrace.errors import ResourceNotFound, UnsupportedOperation


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks without saying anything more."""


class ClusterDetail(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller: int
    brokers: int
    topics: int
    partitions: int
    groups: int
    version: str
    object_store: str
    data_dir: str


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
    """Looked at every 15 s; false after 30 s of silence."""
    epoch: int
    doors: dict[str, str]
    partitions: int


class BrokerList(msgspec.Struct, frozen=True, kw_only=True):
    brokers: list[BrokerRow]


class DrainBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    broker: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    dry_run: bool = False


class TriggerRebalance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False


async def describe_cluster(request: Nothing, call: Call) -> ClusterDetail:
    identity = call.broker.identity
    return ClusterDetail(
        cluster_id=identity.cluster_id,
        controller=identity.broker_id,
        brokers=1,
        topics=len(call.broker.topics.by_name),
        partitions=await _partition_count(call),
        groups=len(call.broker.offsets.groups()),
        version=call.parts.health().version,
        object_store=identity.bucket,
        data_dir=identity.data_dir,
    )


async def list_brokers(request: Nothing, call: Call) -> BrokerList:
    identity = call.broker.identity
    health = call.parts.health()
    host, _ = identity.addresses.get("kafka", ("localhost", 0))
    row = BrokerRow(
        id=identity.broker_name,
        number=identity.broker_id,
        host=host,
        port_quic=None,
        port_rpc=None,
        rack_id=identity.rack,
        # It answers, so it is here. Of other brokers a session will tell.
        online=health.is_ready,
        epoch=identity.broker_epoch,
        doors=health.doors,
        partitions=await _partition_count(call),
    )
    return BrokerList(brokers=[row])


async def describe_health(request: Nothing, call: Call) -> Health:
    return call.parts.health()


async def drain_broker(request: DrainBroker, call: Call) -> ClusterDetail:
    if request.broker != call.broker.identity.broker_id:
        raise ResourceNotFound(f"no broker {request.broker}")
    raise UnsupportedOperation("drain is not available yet: there is no other broker that could take the partitions")


async def trigger_rebalance(request: TriggerRebalance, call: Call) -> ClusterDetail:
    raise UnsupportedOperation("rebalance is not available yet: one broker leads every partition")


async def _partition_count(call: Call) -> int:
    topics = list(call.broker.topics.by_name.values())
    return sum([len(topic.partitions) async for chunk in call.turns.chunks(topics) for topic in chunk])
