"""Incremental fetch sessions (KIP-227) on the wire."""

import pytest
from tests.support.kafka_client import (
    NEW_SESSION,
    NO_SESSION,
    Wanted,
    delete_topic,
    fetch,
    fetch_request,
    topic_id,
)
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.fetch_response import FetchResponse

pytestmark = pytest.mark.trap(12)


def told(answer: FetchResponse) -> dict[tuple[str | bytes, int], int]:
    """Size of records by partition, for the partitions that the answer names."""
    return {
        (topic.topic or topic.topic_id, row.partition_index): len(row.records or b"")
        for topic in answer.responses
        for row in topic.partitions
    }


@pytest.mark.requirement("R4.35", "R4.44")
@pytest.mark.parametrize("version", [7, 11, 12])
def test_session_names_partitions_once_and_hears_only_news(client: RawKafka, name: str, version: int) -> None:
    client.create_topic(name, 3)
    wanted = [Wanted(name, partition=index) for index in range(3)]
    first = fetch(client, *wanted, session=NEW_SESSION, version=version)
    assert first.session_id > 0
    assert told(first) == {(name, 0): 0, (name, 1): 0, (name, 2): 0}

    assert told(fetch(client, session=(first.session_id, 1), version=version)) == {}
    batch = batch_of([b"news"])
    client.produce(name, 1, batch)
    second = fetch(client, session=(first.session_id, 2), version=version)
    assert (second.session_id, told(second)) == (first.session_id, {(name, 1): len(batch)})
    # The client has not moved its offset: the records are news until it does.
    assert told(fetch(client, session=(first.session_id, 3), version=version)) == {(name, 1): len(batch)}
    moved = fetch(client, Wanted(name, 1, partition=1), session=(first.session_id, 4), version=version)
    assert told(moved) == {}


def test_waiting_in_a_session_is_waiting_on_all_of_it(node: NodeProcess, client: RawKafka, name: str) -> None:
    client.create_topic(name, 2)
    opened = fetch(client, Wanted(name), Wanted(name, partition=1), session=NEW_SESSION)
    waiting = client.send_request(fetch_request(session=(opened.session_id, 1), wait_ms=600_000), 12)
    with RawKafka(node.kafka) as other:
        other.produce(name, 1, batch_of([b"x"]))
    assert list(told(client.read_response(FetchResponse, 12, waiting))) == [(name, 1)]


@pytest.mark.requirement("R4.37")
@pytest.mark.parametrize("version", [12, 16])
def test_forgotten_partitions_leave_the_session(client: RawKafka, name: str, version: int) -> None:
    client.create_topic(name, 2)
    named: str | bytes = name if version < 13 else topic_id(client, name)
    opened = fetch(client, Wanted(named), Wanted(named, partition=1), session=NEW_SESSION, version=version)
    fetch(client, session=(opened.session_id, 1), forgotten={named: [0]}, version=version)
    for index in (0, 1):
        client.produce(name, index, batch_of([b"x"]))
    assert list(told(fetch(client, session=(opened.session_id, 2), version=version))) == [(named, 1)]


def test_partitions_can_join_later(client: RawKafka, name: str) -> None:
    client.create_topic(name, 2)
    opened = fetch(client, Wanted(name), session=NEW_SESSION)
    joined = fetch(client, Wanted(name, partition=1), session=(opened.session_id, 1))
    assert list(told(joined)) == [(name, 1)]


def test_session_without_session_is_sessionless(client: RawKafka, topic: str) -> None:
    assert fetch(client, Wanted(topic), session=NO_SESSION).session_id == 0


@pytest.mark.parametrize("version", [7, 12, 16])
def test_unknown_session_is_told_so(client: RawKafka, version: int) -> None:
    answer = fetch(client, session=(987_654, 1), version=version)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_epoch_out_of_step_is_told_so(client: RawKafka, topic: str) -> None:
    opened = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    assert fetch(client, session=(opened, 2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert fetch(client, session=(opened, 1)).error_code == 0
    assert fetch(client, session=(opened, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_closed_session_is_gone(client: RawKafka, topic: str) -> None:
    opened = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    closed = fetch(client, Wanted(topic), session=(opened, -1))
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert fetch(client, session=(opened, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_opening_anew_replaces_the_old_session(client: RawKafka, topic: str) -> None:
    opened = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    again = fetch(client, Wanted(topic), session=(opened, 0)).session_id
    assert again not in (0, opened)
    assert fetch(client, session=(opened, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_errors_stay_news_until_they_end(client: RawKafka, topic: str) -> None:
    named = topic_id(client, topic)
    opened = fetch(client, Wanted(named), session=NEW_SESSION, version=16).session_id
    assert delete_topic(client, topic) == 0
    for epoch in (1, 2):
        answer = fetch(client, session=(opened, epoch), version=16)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_position_the_log_contradicts_is_news(client: RawKafka, topic: str) -> None:
    """KIP-320: the client's last epoch ends before its position; nothing else has changed, and it must hear of it."""
    opened = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    assert told(fetch(client, session=(opened, 1))) == {}
    answer = fetch(client, Wanted(topic, 5, last_fetched_epoch=0), session=(opened, 2))
    assert answer.responses[0].partitions[0].diverging_epoch is not None


def test_busy_partition_moves_behind_the_others(client: RawKafka, name: str) -> None:
    client.create_topic(name, 3)
    batch = batch_of([b"x" * 1000])
    for _ in range(3):
        for index in range(3):
            client.produce(name, index, batch)
    wanted = [Wanted(name, partition=index) for index in range(3)]
    opened = fetch(client, *wanted, session=NEW_SESSION, max_bytes=len(batch))
    served = [next(key for key, size in told(opened).items() if size)]
    for epoch in (1, 2):
        answer = fetch(client, session=(opened.session_id, epoch), max_bytes=len(batch))
        served += [key for key, size in told(answer).items() if size]
    assert sorted(served) == [(name, 0), (name, 1), (name, 2)]
