"""The seven metadata events: their JSON, and what they do to the cluster's state."""

import json
import string
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import events
from headrace.control.events import (
    AddNode,
    ClusterState,
    CreateTopic,
    DeleteTopic,
    Event,
    IsrUpdate,
    LeaderChange,
    NodeState,
    RemoveNode,
    UpdateNode,
)
from headrace.errors import MalformedRequest

NODES = ("n1", "n2", "n3")
CREATE = CreateTopic(topic="t", replica_count=2, leader_id="n1", leader_epoch=1, replicas=("n1", "n2"))

nodes = st.sampled_from(NODES)
topics = st.sampled_from(["t", "u"])
epochs = st.integers(-1, 8)
any_event: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        CreateTopic,
        topic=topics,
        replica_count=st.integers(0, 3),
        leader_id=nodes,
        leader_epoch=epochs,
        replicas=st.lists(nodes, max_size=3).map(tuple),
    ),
    st.builds(DeleteTopic, topic=topics),
    st.builds(LeaderChange, topic=topics, leader_id=st.one_of(nodes, st.just("")), leader_epoch=epochs),
    st.builds(IsrUpdate, topic=topics, replica_id=nodes, isr=st.booleans()),
    st.builds(AddNode, node_id=nodes, addr=st.text(string.ascii_letters), rpc_addr=st.just("r")),
    st.builds(RemoveNode, node_id=nodes),
    st.builds(UpdateNode, node_id=nodes, is_healthy=st.booleans()),
)


def run(*history: Event) -> ClusterState:
    """The state after these events, on a cluster of three nodes."""
    added = [AddNode(node_id=node, addr=f"{node}:1", rpc_addr=f"{node}:2") for node in NODES]
    state = reduce(events.apply, [*added, *history], events.EMPTY)
    state.check_invariants()
    return state


@pytest.mark.parametrize(
    ("event", "number", "data"),
    [
        pytest.param(
            CREATE,
            0,
            {"topic": "t", "replica_count": 2, "leader_id": "n1", "leader_epoch": 1, "replicas": ["n1", "n2"]},
            marks=pytest.mark.requirement("R1.87"),
        ),
        pytest.param(DeleteTopic(topic="t"), 1, {"topic": "t"}, marks=pytest.mark.requirement("R1.88")),
        pytest.param(
            LeaderChange(topic="t", leader_id="n2", leader_epoch=2),
            2,
            {"topic": "t", "leader_id": "n2", "leader_epoch": 2},
            marks=pytest.mark.requirement("R1.89"),
        ),
        pytest.param(
            IsrUpdate(topic="t", replica_id="n2", isr=False),
            3,
            {"topic": "t", "replica_id": "n2", "isr": False},
            marks=pytest.mark.requirement("R1.90"),
        ),
        pytest.param(
            AddNode(node_id="n1", addr="h:1", rpc_addr="h:2"),
            4,
            {"node_id": "n1", "addr": "h:1", "rpc_addr": "h:2"},
            marks=pytest.mark.requirement("R1.91"),
        ),
        pytest.param(RemoveNode(node_id="n1"), 5, {"node_id": "n1"}, marks=pytest.mark.requirement("R1.92")),
        pytest.param(
            UpdateNode(node_id="n1", is_healthy=False),
            6,
            {"node_id": "n1", "is_healthy": False},
            marks=pytest.mark.requirement("R1.93"),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
@pytest.mark.requirement("R1.84", "R1.85", "R1.86")
def test_an_event_is_this_json(event: Event, number: int, data: dict[str, object]) -> None:
    entry = events.encode(event)
    assert json.loads(entry) == {"event_type": number, "data": data}
    assert events.decode(entry) == event


@given(any_event)
def test_events_round_trip(event: Event) -> None:
    assert events.decode(events.encode(event)) == event


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"[]",
        b"{}",
        b'{"event_type":7,"data":{}}',
        b'{"event_type":-1,"data":{}}',
        b'{"event_type":1,"data":{}}',
        b'{"event_type":1,"data":{"topic":3}}',
        b'{"event_type":1,"data":{"topic":"\xff"}}',
        events.encode(CREATE)[:-1],
    ],
)
def test_a_malformed_entry_is_refused(entry: bytes) -> None:
    with pytest.raises(MalformedRequest):
        events.decode(entry)


@pytest.mark.requirement("R1.94")
def test_a_topic_is_created_changed_and_deleted() -> None:
    topic = run(CREATE).topics["t"]
    assert (topic.leader_id, topic.leader_epoch, topic.isr) == ("n1", 1, frozenset({"n1", "n2"}))
    led = run(CREATE, LeaderChange(topic="t", leader_id="n2", leader_epoch=2)).topics["t"]
    assert (led.leader_id, led.leader_epoch) == ("n2", 2)
    assert run(CREATE, IsrUpdate(topic="t", replica_id="n2", isr=False)).topics["t"].isr == {"n1"}
    assert run(CREATE, DeleteTopic(topic="t")).topics == {}


@pytest.mark.requirement("R1.94")
def test_nodes_come_change_and_go() -> None:
    assert run().nodes["n1"] == NodeState(addr="n1:1", rpc_addr="n1:2", is_healthy=True)
    assert not run(UpdateNode(node_id="n1", is_healthy=False)).nodes["n1"].is_healthy
    assert "n1" not in run(RemoveNode(node_id="n1")).nodes


def test_a_removed_node_leads_nothing_and_is_in_sync_nowhere() -> None:
    topic = run(CREATE, RemoveNode(node_id="n1")).topics["t"]
    assert (topic.leader_id, topic.isr, topic.leader_epoch) == ("", frozenset({"n2"}), 1)


def test_the_last_in_sync_replica_stays_known_when_its_node_goes() -> None:
    fallen_behind = IsrUpdate(topic="t", replica_id="n2", isr=False)
    topic = run(CREATE, fallen_behind, RemoveNode(node_id="n1")).topics["t"]
    assert (topic.leader_id, topic.isr) == ("", frozenset({"n1"}))


@pytest.mark.parametrize(
    "event",
    [
        CREATE,
        CreateTopic(topic="u", replica_count=3, leader_id="n1", leader_epoch=1, replicas=("n1",)),
        CreateTopic(topic="u", replica_count=1, leader_id="n2", leader_epoch=1, replicas=("n1",)),
        CreateTopic(topic="u", replica_count=1, leader_id="x", leader_epoch=1, replicas=("x",)),
        CreateTopic(topic="u", replica_count=1, leader_id="n1", leader_epoch=2**31, replicas=("n1",)),
        DeleteTopic(topic="u"),
        LeaderChange(topic="t", leader_id="n2", leader_epoch=1),
        LeaderChange(topic="t", leader_id="n3", leader_epoch=2),
        LeaderChange(topic="t", leader_id="n2", leader_epoch=2**31),
        IsrUpdate(topic="t", replica_id="n1", isr=False),
        IsrUpdate(topic="t", replica_id="n3", isr=True),
        RemoveNode(node_id="x"),
        UpdateNode(node_id="x", is_healthy=True),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing_and_says_why(event: Event) -> None:
    state = run(CREATE)
    assert events.refusal(state, event)
    assert events.apply(state, event) is state


@pytest.mark.requirement("R1.95")
@given(st.lists(any_event, max_size=40))
def test_replaying_the_same_entries_gives_the_same_state(history: list[Event]) -> None:
    entries = [events.encode(event) for event in history]
    states = [reduce(events.apply, map(events.decode, entries), events.EMPTY) for _ in range(2)]
    assert states[0] == states[1]


@given(st.lists(any_event, max_size=40))
def test_invariants_hold_after_every_event_and_epochs_only_grow(history: list[Event]) -> None:
    state = run()
    for event in history:
        after = events.apply(state, event)
        after.check_invariants()
        for name in state.topics.keys() & after.topics.keys():
            assert after.topics[name].leader_epoch >= state.topics[name].leader_epoch
        state = after
