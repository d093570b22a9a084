"""The metadata events of the replicated log: numbers, JSON, and what they do on every node alike."""

import json

import pytest

from headrace.control import events
from headrace.control.events import (
    EMPTY,
    AddNode,
    ClusterState,
    CreateTopic,
    DeleteTopic,
    Event,
    IsrUpdate,
    LeaderChange,
    RemoveNode,
    UpdateNode,
)
from headrace.errors import MalformedRequest

SAMPLES: list[tuple[Event, dict[str, object]]] = [
    (
        CreateTopic(topic="t", replica_count=2, leader_id="n1", leader_epoch=1, replicas=("n1", "n2")),
        {"topic": "t", "replica_count": 2, "leader_id": "n1", "leader_epoch": 1, "replicas": ["n1", "n2"]},
    ),
    (DeleteTopic(topic="t"), {"topic": "t"}),
    (
        LeaderChange(topic="t", leader_id="n2", leader_epoch=2),
        {"topic": "t", "leader_id": "n2", "leader_epoch": 2},
    ),
    (IsrUpdate(topic="t", replica_id="n2", isr=False), {"topic": "t", "replica_id": "n2", "isr": False}),
    (AddNode(node_id="n1", addr="h:1", rpc_addr="h:2"), {"node_id": "n1", "addr": "h:1", "rpc_addr": "h:2"}),
    (RemoveNode(node_id="n1"), {"node_id": "n1"}),
    (UpdateNode(node_id="n1", is_healthy=False), {"node_id": "n1", "is_healthy": False}),
]


@pytest.mark.requirement(*[f"R1.{n}" for n in range(85, 94)])
def test_events_are_numbered_and_enveloped() -> None:
    for number, (event, data) in enumerate(SAMPLES):
        entry = events.encode(event)
        assert json.loads(entry) == {"event_type": number, "data": data}
        assert events.decode(entry) == event


@pytest.mark.requirement("R1.84")
def test_an_entry_is_metadata_and_nothing_else() -> None:
    assert {field for _, data in SAMPLES for field in data} == {
        "topic",
        "replica_count",
        "leader_id",
        "leader_epoch",
        "replicas",
        "replica_id",
        "isr",
        "node_id",
        "addr",
        "rpc_addr",
        "is_healthy",
    }
    with pytest.raises(MalformedRequest):
        events.decode(b'{"event_type":7,"data":{}}')


@pytest.mark.requirement("R1.94", "R1.95")
def test_replaying_the_log_gives_the_same_state_everywhere() -> None:
    script: list[Event] = [
        AddNode(node_id="n1", addr="h1:1", rpc_addr="h1:2"),
        AddNode(node_id="n2", addr="h2:1", rpc_addr="h2:2"),
        CreateTopic(topic="t", replica_count=2, leader_id="n1", leader_epoch=1, replicas=("n1", "n2")),
        CreateTopic(topic="u", replica_count=1, leader_id="n2", leader_epoch=1, replicas=("n2",)),
        IsrUpdate(topic="t", replica_id="n2", isr=False),
        IsrUpdate(topic="t", replica_id="n2", isr=True),
        LeaderChange(topic="t", leader_id="n2", leader_epoch=2),
        UpdateNode(node_id="n1", is_healthy=False),
        DeleteTopic(topic="u"),
        DeleteTopic(topic="nonexistent"),
    ]
    log = [events.encode(event) for event in script]

    def replay() -> ClusterState:
        state = EMPTY
        for entry in log:
            state = events.apply(state, events.decode(entry))
            state.check_invariants()
        return state

    assert replay() == replay()
    state = replay()
    assert set(state.topics) == {"t"}
    assert (state.topics["t"].leader_id, state.topics["t"].leader_epoch) == ("n2", 2)
    assert not state.nodes["n1"].is_healthy
