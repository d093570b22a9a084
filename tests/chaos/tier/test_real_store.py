"""A real node on a real S3 server: the server is killed and comes back, the node is killed, its disk is lost."""

import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import S3Server, seaweedfs
from tests.support.outages import (
    PATIENCE_S,
    Load,
    consume_all,
    create_topic,
    exposure,
    make_node,
    metric,
    problems,
    uploaded_node,
    wait_uploaded,
)
from tests.support.raw_groups import commit, init_transactions
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListGroupsResponse

TRANSACTION_MS_MAX = 900_000
"""No transaction ends because a machine is slow."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs() as running:
        yield running


@pytest.mark.slow
@pytest.mark.requirement("R3.46", "R3.51", "R3.117")
def test_producers_go_on_while_the_store_is_down_and_all_is_uploaded_after(tmp_path: Path, server: S3Server) -> None:
    with uploaded_node(tmp_path, server, topic="t", count=500) as (node, load):
        server.stop()
        for _ in range(5):
            load.send(200)
            time.sleep(0.3)
        assert exposure(node) > 0
        server.start()
        load.send(500)
        wait_uploaded(node)
        node.kill()
        shutil.rmtree(node.data_dir / "wal")
        node.start()
        found = consume_all(node, "t", 2000)
        assert len(found) == len(set(found)) == 2000
        assert set(found) == load.acknowledged


@pytest.mark.slow
def test_a_second_sigterm_does_not_wait_for_a_store_that_is_down(tmp_path: Path, server: S3Server) -> None:
    with uploaded_node(tmp_path, server, topic="t", count=100, **{"tier.stop.upload.ms": 3_600_000}) as (node, load):
        server.stop()
        try:
            load.send(100)
            node.process_signal(signal.SIGTERM)
            eventually(lambda: "signal again to stop now" in node.log_text(), PATIENCE_S, "no word about the wait")
            assert node.stop() == 0
            assert "records that only its disk has" in node.log_text()
            assert "t-0" in node.log_text()
        finally:
            server.start()
        node.start()
        wait_uploaded(node)
        assert set(consume_all(node, "t", 200)) == load.acknowledged


@pytest.mark.slow
@pytest.mark.requirement("R3.6", "R3.53", "R3.119")
@pytest.mark.parametrize("durability", ["wal", "object"])
def test_nothing_acknowledged_is_lost_or_repeated_by_kills_under_load(
    tmp_path: Path, server: S3Server, durability: str
) -> None:
    node = make_node(tmp_path, server, **{"tier.upload.interval.ms": 50}).start()
    acknowledged: set[bytes] = set()
    try:
        create_topic(node, "t", durability=durability)
        for round_ in range(4):
            load = Load(node, "t", first=round_ * 1000)
            load.send(100 + 100 * round_, size=2000)
            acknowledged |= load.acknowledged
            node.kill()
            node.start()
        found = consume_all(node, "t", len(acknowledged))
        assert len(found) == len(set(found))
        assert set(found) == acknowledged
    finally:
        node.stop()


@pytest.mark.requirement("R3.9")
def test_object_durability_survives_the_loss_of_the_disk(tmp_path: Path, server: S3Server) -> None:
    """acks=all on an `object` topic: what was acknowledged is in the bucket, so the WAL may burn."""
    node = make_node(tmp_path, server, **{"tier.upload.interval.ms": 60_000}).start()
    try:
        create_topic(node, "o", durability="object")
        load = Load(node, "o")
        load.send(300)
        node.kill()
        shutil.rmtree(node.data_dir / "wal")
        node.start()
        assert set(consume_all(node, "o", 300)) == load.acknowledged
    finally:
        node.stop()


@pytest.mark.slow
def test_a_node_starts_without_the_store_it_had_and_uploads_once_it_is_back(tmp_path: Path, server: S3Server) -> None:
    with uploaded_node(tmp_path, server, topic="t", count=300) as (node, load):
        assert node.stop() == 0
        server.stop()
        node.start()
        again = Load(node, "t", first=300)
        again.send(300)
        assert exposure(node) > 0
        server.start()
        wait_uploaded(node)
        found = consume_all(node, "t", 600)
        assert len(found) == len(set(found)) == 600
        assert set(found) == load.acknowledged | again.acknowledged


@pytest.mark.slow
def test_a_node_killed_before_its_first_upload_starts_without_the_store(tmp_path: Path, server: S3Server) -> None:
    node = make_node(tmp_path, server, **{"tier.upload.interval.ms": 60_000}).start()
    try:
        load = Load(node, "t")
        load.send(100)
        node.kill()
        server.stop()
        node.start()
        again = Load(node, "t", first=100)
        again.send(100)
        found = consume_all(node, "t", 200)
        assert len(found) == len(set(found)) == 200
        assert set(found) == load.acknowledged | again.acknowledged
        node.kill()
        server.start()
        node.settings["tier.upload.interval.ms"] = 300
        node.start()
        wait_uploaded(node)
        assert consume_all(node, "t", 200) == found
    finally:
        if server.process is None:
            server.start()
        node.stop()


@pytest.mark.slow
def test_a_node_whose_disk_was_lost_refuses_to_start_without_the_store(tmp_path: Path, server: S3Server) -> None:
    with uploaded_node(tmp_path, server, topic="t", count=100) as (node, load):
        node.kill()
        server.stop()
        shutil.rmtree(node.data_dir / "wal")
        node.spawn()
        assert node.process is not None
        assert node.process.wait(PATIENCE_S) != 0
        assert "start it when the store is up" in node.log_text()
        server.start()
        node.start()
        assert set(consume_all(node, "t", 100)) == load.acknowledged


def leave_open_transaction(node: NodeProcess, kafka_address: str) -> Producer:
    """The store has an offset of group g, and a transaction of x that is undecided."""
    with RawKafka(kafka_address) as client:
        assert commit(client, "g", "t", {0: 120}) == {0: 0}
    writer = Producer(
        {"bootstrap.servers": kafka_address, "transactional.id": "x", "transaction.timeout.ms": TRANSACTION_MS_MAX}
    )
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce("t", b"open", partition=0)
    assert writer.flush(PATIENCE_S) == 0
    wait_uploaded(node)
    return writer


@pytest.mark.slow
def test_groups_and_transactions_wait_for_the_store_and_go_on_when_it_is_back(
    tmp_path: Path, server: S3Server, kafka_address: str
) -> None:
    """Their state is only in the store: the node serves records without it, and nobody is answered from half of it."""
    settings = {"listen.kafka": kafka_address, "group.initial.rebalance.delay.ms": 0}
    with uploaded_node(tmp_path, server, topic="t", count=300, **settings) as (node, load):
        writer = leave_open_transaction(node, kafka_address)
        assert node.stop() == 0
        server.stop()
        node.start()
        Load(node, "t", first=301).send(100)
        with RawKafka(kafka_address) as client:
            assert listed_groups(client).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert commit(client, "g", "t", {0: 0}) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            assert init_transactions(client, "x").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert metric(node, "headrace_coordinator_loading") == 2
        # Beside what the node says of the store itself.
        assert {each.partition(":")[0] for each in problems(node)} >= {"groups", "transactions"}
        with ThreadPoolExecutor(1) as pool:
            # Both ask while there is no answer yet, and have to be patient.
            reading = pool.submit(next_of_group, node, "g", "t")
            server.start()
            writer.commit_transaction(PATIENCE_S)
            assert reading.result(PATIENCE_S) == 120
        assert metric(node, "headrace_coordinator_loading") == 0
        eventually(lambda: problems(node) == [], PATIENCE_S, "still problems", lambda: "\n".join(problems(node)))
        with RawKafka(kafka_address) as client:
            assert [each.group_id for each in listed_groups(client).groups] == ["g"]
        found = consume_all(node, "t", 401)
        assert found[300] == b"open"
        assert set(found[:300]) == load.acknowledged


@pytest.mark.long
def test_kills_while_coordinators_load_lose_neither_offsets_nor_transactions(
    tmp_path: Path, server: S3Server, kafka_address: str
) -> None:
    """Twice in a row, with their state in the store alone, which is down: what is written meanwhile is kept, too."""
    settings = {"listen.kafka": kafka_address, "group.initial.rebalance.delay.ms": 0}
    with uploaded_node(tmp_path, server, topic="t", count=300, **settings) as (node, load):
        writer = leave_open_transaction(node, kafka_address)
        node.kill()
        server.stop()
        acknowledged = set(load.acknowledged)
        for first in (301, 401):
            node.start()
            again = Load(node, "t", first=first)
            again.send(100)
            acknowledged |= again.acknowledged
            assert metric(node, "headrace_coordinator_loading") == 2
            node.kill()
        node.start()
        assert metric(node, "headrace_coordinator_loading") == 2
        server.start()
        writer.commit_transaction(PATIENCE_S)
        assert next_of_group(node, "g", "t") == 120
        with RawKafka(kafka_address) as client:
            assert [each.group_id for each in listed_groups(client).groups] == ["g"]
        found = consume_all(node, "t", 501)
        assert len(found) == len(set(found)) == 501
        assert found[300] == b"open"
        assert set(found) == acknowledged | {b"open"}


def listed_groups(client: RawKafka) -> ListGroupsResponse:
    return client.call(ListGroupsRequest(), 4, ListGroupsResponse)


def next_of_group(node: NodeProcess, group: str, topic: str) -> int:
    """The offset at which a member of the group goes on."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        while (message := consumer.poll(PATIENCE_S)) is not None:
            if message.error() is None:
                return message.offset() or 0
        raise AssertionError("the group reads nothing")
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_new_node_refuses_to_start_without_the_store(tmp_path: Path, server: S3Server) -> None:
    node = make_node(tmp_path, server)
    server.stop()
    try:
        node.spawn()
        assert node.process is not None
        assert node.process.wait(PATIENCE_S) != 0
        assert "cannot write to it" in node.log_text()
    finally:
        server.start()
