"""What the mlog door answers, message type by message type."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_socket import RawSocket

from headrace.clients import BlockingMlogClient, BlockingRustLogClient, RetryPolicy
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import decode, encode, encode_frame
from headrace.wire.mlog.codes import AckMode, ErrorCode, MessageType
from headrace.wire.mlog.errors import RPCError
from headrace.wire.mlog.replication_batch import decode_replication_batch, decode_replication_batch_strictly


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[RawSocket]:
    with RawSocket(node.endpoints["mlog"]) as connection:
        yield connection


def ask(connection: RawSocket, request: m.Message) -> m.Message:
    connection.send(encode(request))
    return answer(connection)


def answer(connection: RawSocket) -> m.Message:
    (message_type, _), payload = connection.read_frame(">HI")
    return decode(message_type, payload)


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(RPCError) as failed:
        call()
    assert failed.value.message
    return failed.value.code


@pytest.mark.requirement("R1.8", "R1.65")
def test_every_request_type_has_its_answer_type(raw: RawSocket, topic: str) -> None:
    node_id = _node_id(raw)
    pairs: list[tuple[m.Message, type[m.Message]]] = [
        (m.ProduceRequest(Topic=topic, Value=b"v", Acks=1), m.ProduceResponse),
        (m.ProduceBatchRequest(Topic=topic, Values=(b"a", b"b"), Acks=2), m.ProduceBatchResponse),
        (m.FetchRequest(Topic=topic, Offset=0), m.FetchResponse),
        (m.FetchBatchRequest(Topic=topic, Offset=0, MaxCount=2), m.FetchBatchResponse),
        (m.ReplicateRequest(Topic=topic, Offset=3), m.ReplicateResponse),
        (m.CommitOffsetRequest(Topic=topic, Id="c", Offset=1), m.CommitOffsetResponse),
        (m.FetchOffsetRequest(Topic=topic, Id="c"), m.FetchOffsetResponse),
        (m.CreateTopicRequest(Topic=f"{topic}-b", ReplicaCount=1), m.CreateTopicResponse),
        (m.DeleteTopicRequest(Topic=f"{topic}-b"), m.DeleteTopicResponse),
        (m.FindTopicLeaderRequest(Topic=topic), m.FindTopicLeaderResponse),
        (m.FindRaftLeaderRequest(), m.FindRaftLeaderResponse),
        (m.ListTopicsRequest(), m.ListTopicsResponse),
        (
            m.ApplyIsrUpdateEventRequest(Topic=topic, ReplicaNodeID=node_id, Isr=True),
            m.ApplyIsrUpdateEventResponse,
        ),
        (m.FetchStreamRequest(Topic=topic, Offset=0), m.FetchStreamResponse),
    ]
    for request, expected in pairs:
        assert type(ask(raw, request)) is expected


def _node_id(raw: RawSocket) -> str:
    listed = ask(raw, m.ListTopicsRequest())
    assert isinstance(listed, m.ListTopicsResponse)
    return listed.Topics[0].LeaderNodeID


@pytest.mark.requirement("R1.49", "R1.50", "R1.51", "R1.53", "C17", "C18")
@pytest.mark.parametrize("acks", AckMode)
def test_every_ack_mode_returns_offsets(client: BlockingMlogClient, topic: str, acks: AckMode) -> None:
    assert [client.produce(topic, b"v", acks=acks) for _ in range(3)] == [0, 1, 2]
    batch = client.produce_batch(topic, [b"a", b"b", b"c"], acks=acks)
    assert (batch.BaseOffset, batch.LastOffset, batch.Count) == (3, 5, 3)


@pytest.mark.requirement("R1.52", "C18")
@pytest.mark.parametrize("acks", [-1, 3, 2**31 - 1])
def test_an_unknown_ack_mode_is_15(raw: RawSocket, topic: str, acks: int) -> None:
    for request in (
        m.ProduceRequest(Topic=topic, Value=b"v", Acks=acks),
        m.ProduceBatchRequest(Topic=topic, Values=(b"v",), Acks=acks),
    ):
        refused = ask(raw, request)
        assert isinstance(refused, m.RPCErrorResponse)
        assert refused.code == ErrorCode.INVALID_ACK_MODE


@pytest.mark.requirement("R1.72", "C20")
def test_values_are_required(raw: RawSocket, topic: str) -> None:
    for request in (
        m.ProduceRequest(Topic=topic, Acks=1),
        m.ProduceBatchRequest(Topic=topic, Acks=1),
        m.ProduceBatchRequest(Topic=topic, Values=(b"a", b""), Acks=1),
    ):
        refused = ask(raw, request)
        assert isinstance(refused, m.RPCErrorResponse)
        assert refused.code == ErrorCode.VALUES_REQUIRED
    nothing = ask(raw, m.FetchRequest(Topic=topic))
    assert isinstance(nothing, m.RPCErrorResponse)
    assert nothing.code == ErrorCode.READ_OFFSET


@pytest.mark.requirement("R1.72", "R1.70")
def test_missing_and_unknown_topics(raw: RawSocket) -> None:
    calls: list[Callable[[str], m.Message]] = [
        lambda t: m.ProduceRequest(Topic=t, Value=b"v", Acks=1),
        lambda t: m.ProduceBatchRequest(Topic=t, Values=(b"v",), Acks=1),
        lambda t: m.FetchRequest(Topic=t),
        lambda t: m.FetchBatchRequest(Topic=t),
        lambda t: m.FetchStreamRequest(Topic=t),
        lambda t: m.ReplicateRequest(Topic=t),
        lambda t: m.CommitOffsetRequest(Topic=t),
        lambda t: m.FetchOffsetRequest(Topic=t),
        lambda t: m.FindTopicLeaderRequest(Topic=t),
        lambda t: m.ApplyIsrUpdateEventRequest(Topic=t),
    ]
    for call in calls:
        for name, code in (("", ErrorCode.TOPIC_REQUIRED), ("nonexistent", ErrorCode.TOPIC_NOT_FOUND)):
            refused = ask(raw, call(name))
            assert isinstance(refused, m.RPCErrorResponse), type(call(name))
            assert refused.code == code, type(call(name))
    for request, code in (
        (m.CreateTopicRequest(ReplicaCount=1), ErrorCode.TOPIC_NAME_REQUIRED),
        (m.DeleteTopicRequest(), ErrorCode.TOPIC_NAME_REQUIRED),
        (m.DeleteTopicRequest(Topic="nonexistent"), ErrorCode.TOPIC_NOT_FOUND),
    ):
        refused = ask(raw, request)
        assert isinstance(refused, m.RPCErrorResponse)
        assert refused.code == code


@pytest.mark.requirement("R1.56", "R1.72", "C19", "C21")
def test_fetch_reads_literally_and_strictly_below_the_high_watermark(client: BlockingMlogClient, topic: str) -> None:
    client.produce_batch(topic, [b"a", b"b", b"c"])
    client.commit_offset(topic, offset=2)
    assert client.fetch(topic, offset=0) == m.LogEntry(Offset=0, Value=b"a")
    assert client.fetch(topic, offset=2) == m.LogEntry(Offset=2, Value=b"c")
    for offset in (3, 4, 2**64 - 1):
        assert client.fetch(topic, offset=offset) is None


@pytest.mark.requirement("R1.57", "R1.48", "X1.9")
def test_fetch_batch_returns_at_most_max_count_in_order(client: BlockingMlogClient, topic: str) -> None:
    for number in range(20):
        client.produce(topic, b"%d" % number)
    entries = client.fetch_batch(topic, offset=5, count_max=7)
    assert [(e.Offset, e.Value) for e in entries] == [(n, b"%d" % n) for n in range(5, 12)]
    assert len(client.fetch_batch(topic, offset=18, count_max=100)) == 2
    assert len(client.fetch_batch(topic, offset=0, count_max=0)) == 1
    assert client.fetch_batch(topic, offset=20, count_max=5) == ()


@pytest.mark.requirement("R1.54", "R1.31", "R1.33")
def test_a_replica_reads_to_the_end_of_the_log(raw: RawSocket, topic: str) -> None:
    ask(raw, m.ProduceBatchRequest(Topic=topic, Values=(b"a", b"b"), Acks=1))
    fetched = ask(raw, m.FetchBatchRequest(Topic=topic, Offset=0, MaxCount=5, ReplicaNodeID="n2"))
    assert isinstance(fetched, m.FetchBatchResponse)
    assert [entry.Offset for entry in fetched.Entries] == [0, 1]


@pytest.mark.requirement("R1.62", "C23", "X1.9")
def test_consumer_offsets(client: BlockingMlogClient, topic: str) -> None:
    assert client.fetch_offset(topic, consumer_id="a") == 0
    assert client.commit_offset(topic, offset=7, consumer_id="a")
    assert client.commit_offset(topic, offset=2**53 + 1, consumer_id="")
    assert client.fetch_offset(topic, consumer_id="a") == 7
    assert client.fetch_offset(topic, consumer_id="b") == 0
    assert client.fetch_offset(topic, consumer_id="default") == 2**53 + 1
    client.commit_offset(topic, offset=3, consumer_id="a")
    assert client.fetch_offset(topic, consumer_id="a") == 3
    assert code_of(lambda: client.commit_offset(topic, offset=2**63)) == ErrorCode.COMMIT_OFFSET


@pytest.mark.requirement("R1.62", "C5")
def test_commits_and_records_outlive_a_restart(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with BlockingMlogClient([node.endpoints["mlog"]]) as client:
            client.create_topic("t")
            client.produce_batch("t", [b"a", b"b"], acks=AckMode.ALL)
            client.commit_offset("t", offset=1, consumer_id="c")
        node.kill()
        node.start()
        with BlockingMlogClient([node.endpoints["mlog"]]) as client:
            assert client.fetch_offset("t", consumer_id="c") == 1
            assert [entry.Value for entry in client.fetch_batch("t", offset=0, count_max=9)] == [b"a", b"b"]


@pytest.mark.requirement("R1.35", "R1.36", "R1.72", "C28")
def test_creating_topics(raw: RawSocket, client: BlockingMlogClient, topic: str) -> None:
    node_id = _node_id(raw)
    assert client.create_topic(f"{topic}-1", replicas=1) == (node_id,)
    designated = ask(raw, m.CreateTopicRequest(Topic=f"{topic}-2", ReplicaCount=1, DesignatedLeaderNodeID=node_id))
    assert designated == m.CreateTopicResponse(Topic=f"{topic}-2", ReplicaNodeIds=(node_id,))
    for request, code in (
        (m.CreateTopicRequest(Topic=topic, ReplicaCount=1), ErrorCode.TOPIC_EXISTS),
        (m.CreateTopicRequest(Topic="new", ReplicaCount=0), ErrorCode.REPLICA_COUNT_INVALID),
        (m.CreateTopicRequest(Topic="new", ReplicaCount=2), ErrorCode.NOT_ENOUGH_NODES),
        (
            m.CreateTopicRequest(Topic="new", ReplicaCount=1, DesignatedLeaderNodeID="n9"),
            ErrorCode.CANNOT_REACH_LEADER,
        ),
        (m.CreateTopicRequest(Topic="no spaces", ReplicaCount=1), ErrorCode.UNKNOWN),
    ):
        refused = ask(raw, request)
        assert isinstance(refused, m.RPCErrorResponse)
        assert refused.code == code


@pytest.mark.requirement("R1.37")
def test_a_deleted_topic_is_gone(client: BlockingMlogClient, topic: str) -> None:
    client.produce(topic, b"v")
    client.delete_topic(topic)
    assert topic not in {each.Name for each in client.list_topics()}
    assert code_of(lambda: client.produce(topic, b"v")) == ErrorCode.TOPIC_NOT_FOUND
    client.create_topic(topic)
    assert client.produce(topic, b"v") == 0


@pytest.mark.requirement("R1.61")
def test_finding_leaders(node: NodeProcess, client: BlockingMlogClient, topic: str) -> None:
    assert client.find_topic_leader(topic) == node.endpoints["mlog"]
    assert client.find_raft_leader() == node.endpoints["mlog"]


def test_a_client_of_another_host_is_told_the_address_that_it_came_by(tmp_path: Path) -> None:
    """A listener on 0.0.0.0 has many addresses; `localhost` would be the client's own host."""
    with running_node(tmp_path / "data", {"listen.mlog": "0.0.0.0:0", "listener.mlog.open": "true"}) as node:
        port = node.endpoints["mlog"].rpartition(":")[2]
        for host in ("127.0.0.1", "127.0.0.2"):
            with RawSocket(f"{host}:{port}") as raw:
                found = ask(raw, m.FindRaftLeaderRequest())
                assert found == m.FindRaftLeaderResponse(RaftLeaderAddr=f"{host}:{port}")


def test_listing_topics(client: BlockingMlogClient, topic: str) -> None:
    client.produce_batch(topic, [b"a", b"b"])
    (info,) = [each for each in client.list_topics() if each.Name == topic]
    (replica,) = info.Replicas
    assert (replica.NodeID, replica.IsISR, replica.LEO) == (info.LeaderNodeID, True, 2)
    assert info.LeaderEpoch >= 0


@pytest.mark.requirement("R1.64", "R1.45")
def test_the_in_sync_set_of_one_node(raw: RawSocket, topic: str) -> None:
    node_id = _node_id(raw)
    assert ask(raw, m.ApplyIsrUpdateEventRequest(Topic=topic, ReplicaNodeID=node_id, Isr=True)) == (
        m.ApplyIsrUpdateEventResponse()
    )
    for request in (
        m.ApplyIsrUpdateEventRequest(Topic=topic, ReplicaNodeID=node_id, Isr=False),
        m.ApplyIsrUpdateEventRequest(Topic=topic, ReplicaNodeID="n2", Isr=True),
    ):
        assert isinstance(ask(raw, request), m.RPCErrorResponse)


@pytest.mark.requirement("R1.65", "R1.100", "R1.109", "C15", "C25")
def test_replicate_stream_sends_batches_and_then_the_end(raw: RawSocket, topic: str) -> None:
    values = tuple(b"%d" % n for n in range(25))
    ask(raw, m.ProduceBatchRequest(Topic=topic, Values=values, Acks=1))
    raw.send(encode(m.ReplicateRequest(Topic=topic, Offset=5, BatchSize=8, ReplicaNodeID="n2")))
    frames: list[m.ReplicateResponse] = []
    while not frames or not frames[-1].EndOfStream:
        frame = answer(raw)
        assert isinstance(frame, m.ReplicateResponse)
        frames.append(frame)
    assert frames[-1] == m.ReplicateResponse(Topic=topic, EndOfStream=True, LeaderLEO=25)
    batches = [decode_replication_batch_strictly(frame.RawChunk) for frame in frames[:-1]]
    assert [len(batch.records) for batch in batches] == [8, 8, 4]
    assert {(batch.leader_epoch, batch.attributes) for batch in batches} == {(0, 0)}
    assert [record for batch in batches for record in batch.records] == [(n, b"%d" % n) for n in range(5, 25)]
    at_end = ask(raw, m.ReplicateRequest(Topic=topic, Offset=25))
    assert at_end == m.ReplicateResponse(Topic=topic, EndOfStream=True, LeaderLEO=25)
    past = ask(raw, m.ReplicateRequest(Topic=topic, Offset=26))
    assert isinstance(past, m.RPCErrorResponse)
    assert past.code == ErrorCode.READ_OFFSET


@pytest.mark.requirement("R1.65", "C15")
def test_fetch_stream_waits_at_the_end_and_goes_on(raw: RawSocket, client: BlockingMlogClient, topic: str) -> None:
    client.produce_batch(topic, [b"0", b"1"])
    raw.send(encode(m.FetchStreamRequest(Topic=topic, Id="c", Offset=1)))
    assert answer(raw) == m.FetchStreamResponse(Entry=m.LogEntry(Offset=1, Value=b"1"))
    for number in range(2, 50):
        client.produce(topic, b"%d" % number)
        assert answer(raw) == m.FetchStreamResponse(Entry=m.LogEntry(Offset=number, Value=b"%d" % number))
    client.delete_topic(topic)
    ended = answer(raw)
    assert isinstance(ended, m.RPCErrorResponse)
    assert ended.code == ErrorCode.TOPIC_NOT_FOUND


@pytest.mark.requirement("R1.65")
def test_the_clients_stream(client: BlockingMlogClient, topic: str) -> None:
    client.produce_batch(topic, [b"%d" % n for n in range(300)])
    seen = []
    for entry in client.stream(topic, offset=0):
        seen.append(entry.Offset)
        if len(seen) == 300:
            break
    assert seen == list(range(300))


@pytest.mark.requirement("C24", "R1.3")
def test_entries_that_do_not_fit_a_frame(node: NodeProcess, client: BlockingMlogClient, topic: str) -> None:
    client.produce(topic, os.urandom(2_000_000))
    client.produce(topic, os.urandom(2_000_000))
    assert len(client.fetch_batch(topic, offset=0, count_max=10)) == 1
    with BlockingRustLogClient(node.endpoints["rustlog"], retry=RetryPolicy(attempts_max=1)) as rustlog:
        rustlog.create_topic(f"{topic}-large")
        rustlog.produce(f"{topic}-large", [bytes(4_000_000)])
        rustlog.produce(f"{topic}-large", [b"small"])
    with RawSocket(node.endpoints["mlog"]) as raw:
        refused = ask(raw, m.FetchRequest(Topic=f"{topic}-large", Offset=0))
        assert isinstance(refused, m.RPCErrorResponse)
        assert refused.code == ErrorCode.READ_OFFSET
        assert "4000000 bytes" in refused.message
    assert client.fetch(f"{topic}-large", offset=1) == m.LogEntry(Offset=1, Value=b"small")


@pytest.mark.requirement("R1.3")
def test_the_largest_value_that_is_taken_comes_back_from_every_verb(raw: RawSocket, topic: str) -> None:
    """Its neighbours in size are taken or refused by Produce, never by a reader."""
    largest = 3_145_631 - (len(topic) - 1) * 3 // 4 - 3
    while isinstance(ask(raw, m.ProduceRequest(Topic=topic, Value=bytes(largest + 1), Acks=1)), m.ProduceResponse):
        largest += 1
    value = os.urandom(largest)
    produced = ask(raw, m.ProduceRequest(Topic=topic, Value=value, Acks=1))
    assert isinstance(produced, m.ProduceResponse)
    too_large = ask(raw, m.ProduceBatchRequest(Topic=topic, Values=(bytes(largest + 1),), Acks=1))
    assert isinstance(too_large, m.RPCErrorResponse)
    assert str(largest) in too_large.message
    at = produced.Offset
    entry = m.LogEntry(Offset=at, Value=value)
    assert ask(raw, m.FetchRequest(Topic=topic, Offset=at)) == m.FetchResponse(Entry=entry)
    assert ask(raw, m.FetchBatchRequest(Topic=topic, Offset=at, MaxCount=9)) == m.FetchBatchResponse(Entries=(entry,))
    replicated = ask(raw, m.ReplicateRequest(Topic=topic, Offset=at))
    assert isinstance(replicated, m.ReplicateResponse)
    assert decode_replication_batch(replicated.RawChunk) == [(at, value)]
    assert answer(raw) == m.ReplicateResponse(Topic=topic, EndOfStream=True, LeaderLEO=at + 1)
    assert ask(raw, m.FetchStreamRequest(Topic=topic, Offset=at)) == m.FetchStreamResponse(Entry=entry)


@pytest.mark.requirement("R1.47")
def test_json_as_go_would_read_it(raw: RawSocket, topic: str) -> None:
    payloads: list[dict[str, Any]] = [
        {"topic": topic, "value": "aGk=", "acks": 1},
        {"TOPIC": topic, "Value": "aGk=", "Acks": 2, "Unknown": {"x": [None]}},
        {"Topic": topic, "Value": "aGk=", "Acks": None},
    ]
    for number, payload in enumerate(payloads):
        raw.send(encode_frame(MessageType.PRODUCE, json.dumps(payload).encode()))
        assert answer(raw) == m.ProduceResponse(Offset=number)


def test_topics_with_several_partitions_are_listed_and_read_but_not_written(
    node: NodeProcess, client: BlockingMlogClient, topic: str
) -> None:
    with BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog:
        rustlog.create_topic(f"{topic}-wide", partitions=3)
        rustlog.produce(f"{topic}-wide", [b"x"])
    assert f"{topic}-wide" in {each.Name for each in client.list_topics()}
    assert client.fetch(f"{topic}-wide", offset=0) == m.LogEntry(Offset=0, Value=b"x")
    assert code_of(lambda: client.produce(f"{topic}-wide", b"v")) == ErrorCode.UNKNOWN


def test_type_numbers_on_the_wire(raw: RawSocket) -> None:
    raw.send(struct.pack(">HI", 23, 2) + b"{}")
    (message_type, _), payload = raw.read_frame(">HI")
    assert message_type == 24
    assert list(json.loads(payload)) == ["RaftLeaderAddr"]
