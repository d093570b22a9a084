"""A door that keeps two fetch sessions: whose session goes, and what becomes of a request under way in it."""

from collections.abc import Iterator

import pytest
from tests.support.kafka_client import NEW_SESSION, Wanted, fetch, fetch_request, produce_one
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.fetch_response import FetchResponse

pytestmark = pytest.mark.trap(12)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("few") / "data", {"fetch.sessions.max": 2}) as started:
        yield started


def test_least_recently_used_session_goes_first(client: RawKafka, topic: str) -> None:
    first = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    second = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    assert fetch(client, session=(first, 1)).error_code == 0
    third = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    assert fetch(client, session=(second, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(client, session=(first, 2)).error_code == 0
    assert fetch(client, session=(third, 1)).error_code == 0


def test_session_that_is_dropped_while_it_waits_is_still_answered(
    node: NodeProcess, client: RawKafka, topic: str
) -> None:
    opened = fetch(client, Wanted(topic), session=NEW_SESSION).session_id
    waiting = client.send_request(fetch_request(session=(opened, 1), wait_ms=600_000), 12)
    with RawKafka(node.kafka) as other:
        for _ in range(3):
            fetch(other, Wanted(topic), session=NEW_SESSION)
        produce_one(other, topic, batch_of([b"x"]))
    answer = client.read_response(FetchResponse, 12, waiting)
    assert [(each.topic, each.partitions[0].high_watermark) for each in answer.responses] == [(topic, 1)]
