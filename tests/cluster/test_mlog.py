"""mlog's door with several nodes: each knows who leads a topic, takes changes of metadata, and refuses what is not its own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.clients import MlogClient, RetryPolicy
from headrace.clients.connection import open_connection
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import decode, encode, frame_reader
from headrace.wire.mlog.codes import ErrorCode
from headrace.wire.mlog.errors import RPCError
from headrace.wire.mlog.replication_batch import decode_replication_batch_strictly

NAMES = ("a", "b", "c")
PATIENT = RetryPolicy(attempts_max=40)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[SharedNodes]:
    async with shared_nodes(tmp_path, NAMES) as running:
        yield running


def client_of(nodes: SharedNodes, name: str, retry: RetryPolicy = PATIENT) -> MlogClient:
    return MlogClient([nodes.members[name].address_of("mlog")], retry=retry)


async def until_known(nodes: SharedNodes, topic: str, leader: str, by: tuple[str, ...] = NAMES) -> None:
    """Nodes hear of each other's changes, each in its own time."""
    async with asyncio.timeout(60):
        for name in by:
            async with client_of(nodes, name) as client:
                while (topic, leader) not in [(each.Name, each.LeaderNodeID) for each in await client.list_topics()]:
                    await asyncio.sleep(0.01)


async def code_of_finding(client: MlogClient, topic: str) -> int | None:
    try:
        await client.find_topic_leader(topic)
    except RPCError as error:
        return error.code
    return None


@pytest.mark.requirement("R1.58", "R1.59", "R1.60", "R1.63")
async def test_a_topic_that_one_node_makes_is_led_by_the_one_that_was_named_and_all_say_so(nodes: SharedNodes) -> None:
    async with client_of(nodes, "a") as client:
        assert await client.create_topic("orders", leader="c") == ("c",)
    await until_known(nodes, "orders", "c")
    for name in NAMES:
        async with client_of(nodes, name) as client:
            assert await client.find_topic_leader("orders") == nodes.members["c"].address_of("mlog")
            assert await client.produce("orders", name.encode()) == NAMES.index(name)
    for name, end in (("a", -1), ("c", 3)):
        async with client_of(nodes, name) as client:
            (info,) = [each for each in await client.list_topics() if each.Name == "orders"]
            assert [(each.NodeID, each.IsISR, each.LEO) for each in info.Replicas] == [("c", True, end)]
    async with client_of(nodes, "b") as client:
        await client.delete_topic("orders")
    async with client_of(nodes, "a") as client, asyncio.timeout(60):
        while any(each.Name == "orders" for each in await client.list_topics()):
            await asyncio.sleep(0.01)


@pytest.mark.requirement("X1.5")
async def test_without_a_name_the_node_that_leads_fewest_is_taken(nodes: SharedNodes) -> None:
    async with client_of(nodes, "a") as client:
        made: list[str] = []
        for number in range(6):
            made += await client.create_topic(f"topic-{number}")
            await until_known(nodes, f"topic-{number}", made[-1])
    assert sorted(made) == sorted(NAMES * 2)
    assert sorted(made[:3]) == list(NAMES)


@pytest.mark.requirement("R1.72")
async def test_the_wrong_node_says_so_and_a_dead_leader_is_not_named(nodes: SharedNodes) -> None:
    async with client_of(nodes, "a") as client:
        await client.create_topic("orders", leader="c")
        assert await client.produce("orders", b"first") == 0
        with pytest.raises(RPCError) as refused:
            await client.create_topic("other", leader="nobody")
        assert refused.value.code == ErrorCode.CANNOT_REACH_LEADER
    await until_known(nodes, "orders", "c")
    connection = await open_connection(nodes.members["a"].address_of("mlog"), frame_reader())
    answer = await connection.request(encode(m.ProduceRequest(Topic="orders", Value=b"lost")))
    connection.close()
    said = decode(answer.header[0], answer.payload)
    assert isinstance(said, m.RPCErrorResponse)
    assert said.code == ErrorCode.NOT_TOPIC_LEADER
    await nodes.fence("c")
    async with client_of(nodes, "a", RetryPolicy(attempts_max=1)) as client, asyncio.timeout(60):
        while (code := await code_of_finding(client, "orders")) is None:
            await asyncio.sleep(0.01)
        assert code == ErrorCode.CANNOT_REACH_LEADER
    await nodes.move("c", ["a"])
    await until_known(nodes, "orders", "a", by=("a", "b"))
    async with client_of(nodes, "b") as client:
        assert await client.produce("orders", b"second") == 1
        entry = await client.fetch("orders", offset=0)
        assert entry is not None
        assert entry.Value == b"first"


@pytest.mark.requirement("R1.61")
async def test_whoever_is_said_to_be_in_charge_takes_changes_from_any_node(nodes: SharedNodes) -> None:
    addresses = {nodes.members[name].address_of("mlog") for name in NAMES}
    for name in NAMES:
        async with client_of(nodes, name) as client:
            leader = await client.find_raft_leader()
        assert leader in addresses
        async with MlogClient([leader], retry=PATIENT) as client:
            (made,) = await client.create_topic(f"by-{name}")
        await until_known(nodes, f"by-{name}", made)


@pytest.mark.requirement("R1.65")
async def test_streams_are_served_by_the_leader_and_refused_by_the_others(nodes: SharedNodes) -> None:
    async with client_of(nodes, "a") as client:
        await client.create_topic("orders", leader="c")
        await until_known(nodes, "orders", "c")
        for number in range(3):
            assert await client.produce("orders", b"%d" % number) == number
    replicate = m.ReplicateRequest(Topic="orders", Offset=0, BatchSize=8, ReplicaNodeID="a")
    fetch = m.FetchStreamRequest(Topic="orders", Id="c", Offset=2)
    for request in (replicate, fetch):
        said = await first_answer(nodes, "a", request)
        assert isinstance(said, m.RPCErrorResponse)
        assert said.code == ErrorCode.NOT_TOPIC_LEADER
    chunk = await first_answer(nodes, "c", replicate)
    assert isinstance(chunk, m.ReplicateResponse)
    assert [value for _, value in decode_replication_batch_strictly(chunk.RawChunk).records] == [b"0", b"1", b"2"]
    entry = await first_answer(nodes, "c", fetch)
    assert entry == m.FetchStreamResponse(Entry=m.LogEntry(Offset=2, Value=b"2"))


async def first_answer(nodes: SharedNodes, name: str, request: m.Message) -> m.Message:
    connection = await open_connection(nodes.members[name].address_of("mlog"), frame_reader())
    try:
        answer = await connection.request(encode(request))
        return decode(answer.header[0], answer.payload)
    finally:
        connection.close()
