"""Committed offsets over time: kept across kill -9, copied to the metastore, forgotten with their topic, and fast."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_groups import (
    add_offsets,
    commit,
    commit_in_transaction,
    committed,
    end,
    init_transactions,
    join,
    sync,
    wait_until_loaded,
)
from tests.support.raw_kafka import Producer, RawKafka, batch_of

from headrace.clock import SystemClock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.embedded import EmbeddedMetastore
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_commit_response import OffsetCommitResponse


def test_offsets_and_groups_survive_kill(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with running_node(tmp_path / "data", settings) as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t", 2)
            assert commit(client, "simple", "t", {0: 5, 1: 6}) == {0: 0, 1: 0}
            assert commit(client, "simple", "t", {0: 4}) == {0: 0}
            joined = join(client, "managed")
            sync(client, "managed", joined.member_id, joined.generation_id, {joined.member_id: b"all"})
        for _ in range(2):
            node.kill()
            node.start()
            with RawKafka(node.kafka) as client:
                wait_until_loaded(client)
                assert committed(client, "simple", "t", 0) == (4, 0)
                assert committed(client, "simple", "t", 1) == (6, 0)
                # The member goes on as if nothing had happened: same generation, same share.
                found = sync(client, "managed", joined.member_id, joined.generation_id)
                assert (found.error_code, found.assignment) == (0, b"all")


@pytest.mark.requirement("R3.28")
async def test_offsets_are_copied_to_the_metastore(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            commit(client, "g", "t", {0: 41}, metadata="first")
            commit(client, "g", "t", {0: 42}, metadata="note")
        assert node.stop() == 0
    store = await EmbeddedMetastore.open(tmp_path / "data" / "metastore.sqlite", clock=SystemClock())
    item = await store.get(keys.consumer_offset("g", "t", 0))
    await store.close()
    assert item is not None
    found = values.decode(pb.ConsumerOffset, item.value)
    assert (found.offset, found.metadata) == (42, "note")


def test_offsets_are_forgotten_with_their_topic(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node, RawKafka(node.kafka) as client:
        client.create_topic("t")
        commit(client, "g", "t", {0: 9})
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert client.call(request, 5, DeleteTopicsResponse).responses[0].error_code == 0
        client.create_topic("t")
        eventually(lambda: committed(client, "g", "t") == (-1, 0), 60, "the old offset is still there")


EAGER_TIER = {
    "tier.upload.interval.ms": 50,
    "tier.upload.object.bytes": 65_536,
    "tier.upload.stream.bytes": 1024,
    "tier.sweep.interval.ms": 100,
    "tier.compact.source.bytes": 1 << 20,
    "tier.compact.sources": 2,
    "tier.grace.ms": 0,
    "offsets.topic.num.partitions": 1,
}
"""Everything is uploaded, merged and compacted as soon as it is there."""


@pytest.mark.slow
def test_offsets_survive_upload_compaction_and_kill(tmp_path: Path) -> None:
    expected: dict[tuple[str, int], int] = {}
    count = 0
    with running_node(tmp_path / "data", EAGER_TIER) as node:
        for _ in range(3):
            with RawKafka(node.kafka) as client:
                wait_until_loaded(client)
                client.create_topic("t", 4)
                # Long enough for many uploads, and often enough for most commits to be outdated by later ones.
                deadline, enough = time.monotonic() + 1.5, count + 100
                while time.monotonic() < deadline or count < enough:
                    count += 1
                    place = (f"g{count % 5}", count % 4)
                    assert commit(client, place[0], "t", {place[1]: count}) == {place[1]: 0}
                    expected[place] = count
                    if count % 25 == 0:
                        _commit_in_transaction(client, count, is_commit=count % 50 == 0, expected=expected)
            node.kill()
            node.start()
            with RawKafka(node.kafka) as client:
                wait_until_loaded(client)
                # A transaction that was decided when its node was killed is carried out by the next life.
                for place, offset in expected.items():
                    eventually(_has(client, place, (offset, 0)), 60, f"{place} is not {offset}")
        # What this life has not written itself is read from object storage, compacted.
        with RawKafka(node.kafka) as client:
            eventually(
                lambda: len(client.read_all("__consumer_offsets", 0, may_miss=True)) < count // 2,
                60,
                "nothing was compacted",
                node.log_text,
            )


def _has(client: RawKafka, place: tuple[str, int], expected: tuple[int, int]) -> Callable[[], bool]:
    return lambda: committed(client, place[0], "t", place[1], require_stable=True) == expected


def _commit_in_transaction(
    client: RawKafka, offset: int, *, is_commit: bool, expected: dict[tuple[str, int], int]
) -> None:
    began = init_transactions(client, "x")
    assert began.error_code in (0, 51)
    if began.error_code == 0:
        producer = Producer(began.producer_id, began.producer_epoch)
        assert add_offsets(client, "x", producer, "transactional") == 0
        assert commit_in_transaction(client, "x", producer, "transactional", "t", offset) == 0
        assert end(client, "x", producer, is_commit=is_commit) == 0
        if is_commit:
            expected[("transactional", 0)] = offset


def cpu_seconds(node: NodeProcess) -> float:
    """What the node has computed since its start, in all its threads."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_storm_of_commits_stalls_nothing(tmp_path: Path) -> None:
    """Ten thousand commits go through one connection while another goes on producing."""
    count, window = 10_000, 200
    frames = [
        encode_request(
            OffsetCommitRequest(
                group_id=f"g{number % 50}",
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=number, committed_metadata=""
                            )
                        ],
                    )
                ],
            ),
            7,
            number,
            "storm",
        )
        for number in range(count)
    ]
    with running_node(tmp_path / "data") as node, RawKafka(node.kafka) as client, RawKafka(node.kafka) as other:
        client.create_topic("t")
        commit(client, "g0", "t", {0: 0})
        started = cpu_seconds(node)
        slowest = 0.0
        sent = 0
        for answered in range(count):
            if sent < count and sent - answered < window // 2:
                more = frames[sent : sent + window]
                client.send(b"".join(bytes(frame) for frame in more))
                sent += len(more)
                before = cpu_seconds(node)
                assert other.produce("t", 0, batch_of([b"x"])).error_code == 0
                slowest = max(slowest, cpu_seconds(node) - before)
            answer = client.read_response(OffsetCommitResponse, 7, answered)
            assert answer.topics[0].partitions[0].error_code == 0
        spent = cpu_seconds(node) - started
        assert committed(client, "g49", "t") == (9999, 0)
    # Of the node's own time, since tests share the machine's. Generous: the bar is one second.
    assert spent < 10, f"{count / spent:.0f} commits a second"
    assert slowest < 1, f"a produce waited for {slowest:.2f} s of other work"
