"""Requests that ask for much work: whoever sends them waits, and a good client beside them does not."""

from collections.abc import Iterator

import pytest
from tests.support.bombs import BOMB_TIME_MS, bomb
from tests.support.canary import Canary
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka

INVALID_RECORD = 87


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("budgets") / "data") as node:
        yield node


def test_a_search_by_time_in_a_batch_of_two_million_records_disturbs_nobody(node: NodeProcess) -> None:
    """Read one by one they kept the loop for 24 seconds."""
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("bomb")
        batch = bomb(2_000_000)
        assert len(batch) < 8_000
        assert client.produce("bomb", 0, batch).error_code == 0
        quiet = canary.rest_of()
        for _ in range(3):
            assert client.offset_at("bomb", 0, BOMB_TIME_MS + 1) == -1
        quiet.check_undisturbed()


def test_a_great_many_records_for_a_compacted_topic_disturb_nobody(node: NodeProcess) -> None:
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("compacted", configs={"cleanup.policy": "compact", "max.message.bytes": "8000000"})
        sound, keyless, unsound = bomb(300_000, key=b"k", is_sound=True), bomb(300_000, is_sound=True), bomb(2_000_000)
        quiet = canary.rest_of()
        assert client.produce("compacted", 0, sound).error_code == 0
        refused = client.produce("compacted", 0, keyless)
        assert refused.error_code == INVALID_RECORD
        assert [each.batch_index for each in refused.record_errors][:3] == [0, 1, 2]
        assert client.produce("compacted", 0, unsound).error_code == INVALID_RECORD
        assert client.produce("compacted", 0, sound).base_offset == 300_000
        quiet.check_undisturbed()
