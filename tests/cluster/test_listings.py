"""Groups and transactions of a cluster: each broker answers Kafka's clients for its own, and headrace's own lists have all of them."""

import asyncio
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.broker.peers import listings
from headrace.cli.kafka_transactions import TransactionAdmin
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListGroupsResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse

SETTINGS = {"listen.admin": "127.0.0.1:0", "listen.grpc": "127.0.0.1:0"}
NAMES = ("a", "b")
WORDS = tuple(f"of-{number}" for number in range(6))
"""Of groups and of transactional ids: with two partitions of each internal topic both brokers look after some."""
PATIENCE_S = 60.0


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
    for word in WORDS:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": word})
        producer.init_transactions(PATIENCE_S)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": word, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()


def own_groups(nodes: SharedNodes, name: str) -> set[str]:
    with RawKafka(nodes.members[name].address) as client:
        return {each.group_id for each in client.call(ListGroupsRequest(), 4, ListGroupsResponse).groups}


def own_transactions(nodes: SharedNodes, name: str) -> set[str]:
    with RawKafka(nodes.members[name].address) as client:
        found = client.call(ListTransactionsRequest(), 0, ListTransactionsResponse)
        return {each.transactional_id for each in found.transaction_states}


async def get(nodes: SharedNodes, name: str, path: str) -> httpx.Response:
    host, port = nodes.members[name].node.endpoints["admin"]
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        return await client.get(f"http://{host}:{port}{path}")


async def test_each_broker_lists_its_own_to_kafka_and_all_of_them_everywhere_else(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES, SETTINGS) as nodes:
        await asyncio.to_thread(fill, nodes.bootstrap)
        # As Apache Kafka does: a client asks every broker, and adds up.
        for own in (own_groups, own_transactions):
            a, b = await asyncio.to_thread(own, nodes, "a"), await asyncio.to_thread(own, nodes, "b")
            assert a | b == {*WORDS}
            assert not a & b
            assert a
            assert b
        admin = AdminClient({"bootstrap.servers": nodes.members["a"].address})
        listed = await asyncio.to_thread(lambda: admin.list_consumer_groups().result())
        assert sorted(each.group_id for each in listed.valid) == [*WORDS]
        assert not listed.errors
        described = await asyncio.to_thread(
            lambda: [each.result() for each in admin.describe_consumer_groups(list(WORDS)).values()]
        )
        assert {each.group_id: each.state.name for each in described} == dict.fromkeys(WORDS, "EMPTY")
        for name in NAMES:
            for path, rows, word in (("groups", "groups", "group"), ("transactions",) * 2 + ("transactional_id",)):
                data = (await get(nodes, name, f"/api/v1/{path}")).json()["data"]
                assert [row[word] for row in data[rows]] == [*WORDS]
                assert (data["total"], data["other_brokers"]) == (len(WORDS), [])
                page = (await get(nodes, name, f"/{path}")).text
                assert all(each in page for each in WORDS)
            paged = (await get(nodes, name, "/api/v1/groups?page_size=4&order_by=name desc")).json()["data"]
            assert [row["group"] for row in paged["groups"]] == [*reversed(WORDS[2:])]


async def test_the_command_finds_transactions_whichever_broker_it_is_told_of(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES, SETTINGS) as nodes:
        await asyncio.to_thread(fill, nodes.bootstrap)
        (theirs, *_) = sorted(await asyncio.to_thread(own_transactions, nodes, "b"))
        admin = TransactionAdmin(f"127.0.0.1:1,{nodes.members['a'].address}")
        rows = await asyncio.to_thread(lambda: admin.rows(only_open=False))
        assert [row.transactional_id for row in rows] == [*WORDS]
        assert (await asyncio.to_thread(admin.describe, theirs)).epoch == 0
        await asyncio.to_thread(admin.abort, theirs)
        assert (await asyncio.to_thread(admin.describe, theirs)).epoch == 1, "fenced at its coordinator"


async def test_a_broker_that_does_not_answer_is_named_and_holds_up_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_nodes(tmp_path, NAMES, SETTINGS) as nodes:
        await asyncio.to_thread(fill, nodes.bootstrap)
        own = await asyncio.to_thread(own_groups, nodes, "a")

        async def silent(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(listings, "PATIENCE_S", 0.2)
        monkeypatch.setattr("headrace.broker.peers.service.listed_groups", silent)
        data = (await get(nodes, "a", "/api/v1/groups")).json()["data"]
        assert [row["group"] for row in data["groups"]] == sorted(own)
        assert [each["broker"] for each in data["other_brokers"]] == ["b"]
