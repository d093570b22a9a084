"""The metadata events of a replicated log, their JSON form, and what each does to the cluster's state.

An entry carries `{"event_type": <number>, "data": {...}}`, never a record. `apply` is pure: the same events in the
same order give the same state on every node. An entry that is committed cannot be refused any more, so one that
does not fit the state (an unknown topic, an old epoch, a leader that is not in sync) changes nothing, on every node
alike; `refusal` says why, for whoever is about to propose it.

What always holds, and `check_invariants` checks: the in-sync set is part of the replicas and never empty, since its
last member is the only one known to have the whole log; a leader is in sync, and is a node of the cluster.
"""

from typing import Final

import msgspec

from headrace.errors import MalformedRequest
from headrace.limits import LEADER_EPOCH_MAX

NOBODY: Final = ""
"""The leader of a topic that has none."""


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True):
    """`replicas` are all copies, the leader's included."""

    topic: str
    replica_count: int
    leader_id: str
    leader_epoch: int
    replicas: tuple[str, ...]


class DeleteTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str


class LeaderChange(msgspec.Struct, frozen=True, kw_only=True):
    """An empty `leader_id` leaves the topic without a leader."""

    topic: str
    leader_id: str
    leader_epoch: int


class IsrUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One replica has caught up, or fallen behind."""

    topic: str
    replica_id: str
    isr: bool


class AddNode(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    addr: str
    rpc_addr: str


class RemoveNode(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str


class UpdateNode(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    is_healthy: bool


Event = CreateTopic | DeleteTopic | LeaderChange | IsrUpdate | AddNode | RemoveNode | UpdateNode

EVENT_TYPES: Final[tuple[type[Event], ...]] = (
    CreateTopic,
    DeleteTopic,
    LeaderChange,
    IsrUpdate,
    AddNode,
    RemoveNode,
    UpdateNode,
)
"""An event's number is its place."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    event_type: int
    data: msgspec.Raw


def encode(event: Event) -> bytes:
    return msgspec.json.encode(
        _Envelope(event_type=EVENT_TYPES.index(type(event)), data=msgspec.Raw(msgspec.json.encode(event)))
    )


def decode(entry: bytes) -> Event:
    try:
        envelope = msgspec.json.decode(entry, type=_Envelope)
        if not 0 <= envelope.event_type < len(EVENT_TYPES):
            raise MalformedRequest(f"unknown metadata event type {envelope.event_type}")
        event: Event = msgspec.json.decode(envelope.data, type=EVENT_TYPES[envelope.event_type])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"metadata event: {error}") from error
    return event


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    leader_id: str
    leader_epoch: int
    replicas: tuple[str, ...]
    isr: frozenset[str]


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    addr: str
    rpc_addr: str
    is_healthy: bool = True


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Never changed in place: `apply` gives a new one."""

    topics: dict[str, TopicState] = {}
    nodes: dict[str, NodeState] = {}

    def check_invariants(self) -> None:
        for name, topic in self.topics.items():
            assert topic.isr, f"{name}: nobody has the log"
            assert topic.isr <= set(topic.replicas), f"{name}: in sync without being a replica"
            assert len(set(topic.replicas)) == len(topic.replicas), f"{name}: a replica twice"
            assert 0 <= topic.leader_epoch <= LEADER_EPOCH_MAX, f"{name}: epoch {topic.leader_epoch}"
            if topic.leader_id != NOBODY:
                assert topic.leader_id in topic.isr, f"{name}: leader is not in sync"
                assert topic.leader_id in self.nodes, f"{name}: leader is not a node"


EMPTY: Final = ClusterState()


def apply(state: ClusterState, event: Event) -> ClusterState:
    """The state after a committed event."""
    if refusal(state, event) is not None:
        return state
    match event:
        case CreateTopic():
            topic = TopicState(
                leader_id=event.leader_id,
                leader_epoch=event.leader_epoch,
                replicas=event.replicas,
                # An empty log is in sync wherever it is.
                isr=frozenset(event.replicas),
            )
            return _with_topic(state, event.topic, topic)
        case DeleteTopic():
            left = {name: topic for name, topic in state.topics.items() if name != event.topic}
            return ClusterState(topics=left, nodes=state.nodes)
        case LeaderChange():
            topic = state.topics[event.topic]
            led = msgspec.structs.replace(topic, leader_id=event.leader_id, leader_epoch=event.leader_epoch)
            return _with_topic(state, event.topic, led)
        case IsrUpdate():
            topic = state.topics[event.topic]
            isr = topic.isr | {event.replica_id} if event.isr else topic.isr - {event.replica_id}
            return _with_topic(state, event.topic, msgspec.structs.replace(topic, isr=isr))
        case AddNode():
            return _with_node(state, event.node_id, NodeState(addr=event.addr, rpc_addr=event.rpc_addr))
        case RemoveNode():
            return _without_node(state, event.node_id)
        case UpdateNode():
            node = msgspec.structs.replace(state.nodes[event.node_id], is_healthy=event.is_healthy)
            return _with_node(state, event.node_id, node)


def refusal(state: ClusterState, event: Event) -> str | None:
    """Why the event would change nothing, or None if it would be applied."""
    match event:
        case CreateTopic():
            return _refuse_create(state, event)
        case DeleteTopic():
            return _refuse_unknown_topic(state, event.topic)
        case LeaderChange():
            return _refuse_unknown_topic(state, event.topic) or _refuse_leader(state, event)
        case IsrUpdate():
            return _refuse_unknown_topic(state, event.topic) or _refuse_isr(state, event)
        case AddNode():
            return "a node needs an id" if not event.node_id else None
        case RemoveNode() | UpdateNode():
            return None if event.node_id in state.nodes else f"no node {event.node_id!r}"


def _refuse_create(state: ClusterState, event: CreateTopic) -> str | None:
    if event.topic in state.topics:
        return f"topic {event.topic!r} exists"
    if not event.replicas or event.replica_count != len(event.replicas):
        return f"{event.replica_count} replicas asked for, {len(event.replicas)} named"
    if len(set(event.replicas)) != len(event.replicas):
        return "a replica is named twice"
    if event.leader_id not in event.replicas:
        return f"leader {event.leader_id!r} is not a replica"
    strangers = [replica for replica in event.replicas if replica not in state.nodes]
    if strangers:
        return f"no node {strangers[0]!r}"
    if not 0 <= event.leader_epoch <= LEADER_EPOCH_MAX:
        return f"leader epoch {event.leader_epoch} is out of bounds"
    return None


def _refuse_leader(state: ClusterState, event: LeaderChange) -> str | None:
    topic = state.topics[event.topic]
    if not topic.leader_epoch < event.leader_epoch <= LEADER_EPOCH_MAX:
        return f"leader epoch {event.leader_epoch} does not follow {topic.leader_epoch}"
    if event.leader_id == NOBODY:
        return None
    if event.leader_id not in topic.isr:
        return f"{event.leader_id!r} is not in sync"
    if event.leader_id not in state.nodes:
        return f"no node {event.leader_id!r}"
    return None


def _refuse_isr(state: ClusterState, event: IsrUpdate) -> str | None:
    topic = state.topics[event.topic]
    if event.replica_id not in topic.replicas:
        return f"{event.replica_id!r} is not a replica"
    if event.isr == (event.replica_id in topic.isr):
        return "nothing would change"
    if event.isr and event.replica_id not in state.nodes:
        return f"no node {event.replica_id!r}"
    if not event.isr and event.replica_id == topic.leader_id:
        return "a leader is in sync with itself"
    if not event.isr and topic.isr == {event.replica_id}:
        return f"{event.replica_id!r} is the last that has the whole log"
    return None


def _refuse_unknown_topic(state: ClusterState, topic: str) -> str | None:
    return None if topic in state.topics else f"no topic {topic!r}"


def _with_topic(state: ClusterState, name: str, topic: TopicState) -> ClusterState:
    return ClusterState(topics={**state.topics, name: topic}, nodes=state.nodes)


def _with_node(state: ClusterState, node_id: str, node: NodeState) -> ClusterState:
    return ClusterState(topics=state.topics, nodes={**state.nodes, node_id: node})


def _without_node(state: ClusterState, node_id: str) -> ClusterState:
    """Its topics lose their leader until a LeaderChange names one; it leaves every in-sync set it is not the last of."""
    topics = {name: _without_replica(topic, node_id) for name, topic in state.topics.items()}
    nodes = {each: node for each, node in state.nodes.items() if each != node_id}
    return ClusterState(topics=topics, nodes=nodes)


def _without_replica(topic: TopicState, node_id: str) -> TopicState:
    if node_id not in topic.isr:
        return topic
    return msgspec.structs.replace(
        topic,
        leader_id=NOBODY if topic.leader_id == node_id else topic.leader_id,
        isr=topic.isr - {node_id} or topic.isr,
    )
