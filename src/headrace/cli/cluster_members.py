"""Who a cluster consists of, as its controllers have it: for operators, over the port that brokers use."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from cyclopts import Parameter

from headrace.cli.output import say, show_json, show_table
from headrace.errors import Conflict, Invalid, NotFound

PATIENCE_S: Final = 10.0

Config = Annotated[Path | None, Parameter(name=["--config", "-c"])]
Controllers = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
T = TypeVar("T")


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: int
    state: str
    epoch: int
    kafka: str
    rack: str | None
    machine: str
    leads: int
    """Partitions, whether it serves or not."""
    in_wal: int
    """Of those, partitions of which only this broker's WAL may have the newest records."""


class ControllerRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    is_active: bool


class Members(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    topics: int
    partitions: int
    without_leader: int
    """Partitions whose leader does not serve, or has not opened them yet."""
    controllers: list[ControllerRow]
    brokers: list[BrokerRow]


def describe_members(*, config: Path | None, controllers: list[str] | None, as_json: bool) -> None:
    members = asyncio.run(_with_store(config, controllers, _read))
    if as_json:
        show_json(members)
        return
    fields = {
        "cluster": members.cluster_id,
        "topics": members.topics,
        "partitions": members.partitions,
        "without leader": members.without_leader,
    }
    for name, value in fields.items():
        say(f"{name:<16}{value}")
    say("")
    show_table(
        [msgspec.structs.asdict(each) for each in members.controllers],
        columns=("name", "address", "is_active"),
        as_json=False,
        title="controllers",
    )
    say("")
    show_table(
        [msgspec.structs.asdict(each) for each in members.brokers],
        columns=("name", "id", "state", "epoch", "kafka", "rack", "leads", "in_wal"),
        as_json=False,
        title="brokers",
    )


def remove_node(name: str, *, config: Config = None, controllers: Controllers = None) -> None:
    """Forget a broker that does not come back. One that still serves is refused: stop it first.

    Nothing is copied: others lead its `object` partitions since it was fenced. A broker that stops in order is forgotten by itself. A
    controller needs no removal: it is not listed once its process has ended.

    Parameters
    ----------
    name:
        The broker's `broker.id`, as `headrace cluster describe` shows it.
    config:
        Settings file of any broker: it says where the controllers are, and how nodes prove who they are.
    controllers:
        `host:port` of each controller, where they ask for no proof.
    """
    asyncio.run(_remove(name, config, controllers))
    say(f"{name} is forgotten; its certificate stays valid: do not let its key lie about")


async def _remove(name: str, config: Path | None, controllers: list[str] | None) -> None:
    from headrace.clock import SystemClock
    from headrace.control import values_pb2 as pb
    from headrace.control.membership import Membership

    members = await _with_store(config, controllers, _read)
    found = next((each for each in members.brokers if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in members.brokers)
        raise NotFound(f"no broker {name!r} is registered; these are: {known or 'none'}")
    if found.state != pb.BrokerState.Name(pb.FENCED):
        raise Conflict(f"broker {name} is {found.state}: stop its process first, or wait until it is FENCED")
    if found.in_wal:
        raise Conflict(
            f"only the WAL of {name} has the newest records of {found.in_wal} partitions: start it again, or attach its disk elsewhere "
            "(`headrace broker adopt`), or give them up (`headrace cluster give-up-wal`)"
        )
    membership = Membership(controllers_of(config, controllers), name, clock=SystemClock())
    try:
        await membership.dismiss(found.epoch, patience_s=PATIENCE_S)
    finally:
        await membership.close()
    left = await _with_store(config, controllers, _read)
    if any(each.name == name for each in left.brokers):
        raise Conflict(f"broker {name} has registered anew meanwhile")


async def _with_store(config: Path | None, controllers: list[str] | None, question: Callable[[Any], Awaitable[T]]) -> T:
    return await with_store(controllers_of(config, controllers), question)


async def with_store(controllers: Any, question: Callable[[Any], Awaitable[T]]) -> T:
    """Ask the metastore, through the controllers."""
    from headrace.control.etcd.store import EtcdMetastore

    store = await EtcdMetastore.open(controllers)
    try:
        return await question(store)
    finally:
        await store.close()


def controllers_of(
    config: Path | None, controllers: list[str] | None
) -> Any:  # Any: nothing is loaded before it is needed
    import os

    from headrace.config.load import load

    if (config is None) == (not controllers):
        raise Invalid("say where the controllers are: --config FILE of a broker, or --controllers HOST:PORT")
    given = [] if not controllers else [f"controller.endpoints={','.join(controllers)}"]
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    assumed = _FOR_NOBODY if controllers else ()
    settings = load(file=config, environ=os.environ, assignments=[*given, *assumed], role="broker")
    return settings.control.as_controllers()


_FOR_NOBODY: Final = ("security.open=true", "object_store.type=local")
"""What a broker's settings have to say and nobody is told here."""


async def _read(store: Any) -> Members:
    from headrace.broker.broker_watch import read_controllers
    from headrace.broker.identity import serves
    from headrace.clock import SystemClock
    from headrace.control import values_pb2 as pb
    from headrace.control.cluster import Cluster
    from headrace.control.controller.machine import is_open
    from headrace.control.wal_plans import is_in_ring

    cluster = await Cluster.load(store, SystemClock())
    registered = await cluster.brokers()
    partitions = [each for topic in cluster.topics for each in topic.partitions]
    serving = {name for name, each in registered.items() if serves(each)}
    return Members(
        cluster_id=cluster.cluster_id,
        topics=sum(1 for _ in cluster.topics),
        partitions=len(partitions),
        without_leader=sum(each.leader not in serving or not is_open(each) for each in partitions),
        controllers=[
            ControllerRow(name=each.id, address=each.endpoint, is_active=each.is_active)
            for each in await read_controllers(store)
        ],
        brokers=[
            BrokerRow(
                name=name,
                id=each.numeric_id,
                state=pb.BrokerState.Name(each.state),
                epoch=each.broker_epoch,
                kafka=each.advertised.get("kafka", ""),
                rack=each.rack_id or None,
                machine=each.machine_id,
                leads=sum(partition.leader == name for partition in partitions),
                in_wal=sum(partition.leader == name and is_in_ring(partition) for partition in partitions),
            )
            for name, each in sorted(registered.items(), key=lambda pair: pair[1].numeric_id)
        ],
    )
