"""Requests that ask for much work: whoever sends them waits, and a good client beside them does not."""

from collections.abc import Iterator

import pytest
from tests.support.bombs import BOMB_TIME_MS, bomb
from tests.support.canary import Canary
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka

from headrace.clients.errors import ClientError
from headrace.clients.mlog import BlockingMlogClient
from headrace.clients.rustlog import BlockingRustLogClient
from headrace.records.batch import Codec
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

REQUEST_TIMED_OUT = 7
INVALID_RECORD = 87
RECORDS = 60_000
BATCHES = 33


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("budgets") / "data") as node:
        yield node


def produce_in_the_end(client: RawKafka, topic: str, batch: bytes) -> None:
    """A batch of very many records may have to wait for the partition's offset ceiling, as a client would."""

    def is_taken() -> bool:
        code = client.produce(topic, 0, batch).error_code
        assert code in (0, REQUEST_TIMED_OUT)
        return code == 0

    eventually(is_taken, 60, "the batch is never taken")


def test_a_search_by_time_among_two_million_records_disturbs_nobody(node: NodeProcess) -> None:
    """In batches of less than a kilobyte each. Read one by one they kept the loop for 24 seconds."""
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("bomb")
        batch = bomb(RECORDS)
        assert len(batch) < 1_000
        for _ in range(BATCHES):
            produce_in_the_end(client, "bomb", batch)

        def attack() -> None:
            for _ in range(3):
                assert client.offset_at("bomb", 0, BOMB_TIME_MS + 1) == -1

        canary.check_undisturbed_by(attack)


def test_a_great_many_records_for_a_compacted_topic_disturb_nobody(node: NodeProcess) -> None:
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("compacted", configs={"cleanup.policy": "compact", "max.message.bytes": "8000000"})
        sound, keyless, unsound = bomb(RECORDS, key=b"k", is_sound=True), bomb(RECORDS, is_sound=True), bomb(RECORDS)

        def attack() -> None:
            for _ in range(10):
                produce_in_the_end(client, "compacted", sound)
                refused = client.produce("compacted", 0, keyless)
                assert refused.error_code == INVALID_RECORD
                assert [each.batch_index for each in refused.record_errors][:3] == [0, 1, 2]
                assert client.produce("compacted", 0, unsound).error_code == INVALID_RECORD

        canary.check_undisturbed_by(attack)


def test_a_batch_of_very_many_records_read_one_by_one_disturbs_nobody(node: NodeProcess) -> None:
    """RustLog and mlog make something of each record. Taken apart on the loop, one such batch was a second of silence."""
    count = 300_000
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("heavy")
        produce_in_the_end(client, "heavy", bomb(count, is_sound=True))
        for _ in range(20):
            produce_in_the_end(client, "heavy", bomb(5_000, is_sound=True))
        rustlog = BlockingRustLogClient(node.endpoints["rustlog"])
        mlog = BlockingMlogClient([node.endpoints["mlog"]])

        def attack() -> None:
            for offset in (0, count // 2, count - 10, count, count):
                fetched = rustlog.fetch("heavy", offset=offset, max_bytes=1 << 20)
                assert fetched.records[0].offset == offset
                entries = mlog.fetch_batch("heavy", offset=offset, count_max=100_000)
                assert entries[0].Offset == offset

        canary.check_undisturbed_by(attack)
        rustlog.close()
        mlog.close()


def test_a_record_that_inflates_to_a_hundred_megabytes_disturbs_nobody(node: NodeProcess) -> None:
    """No frame of the JSON doors can carry it. They have to inflate it to find that out."""
    inflated = build_batch([NewRecord(value=bytes(100_000_000))], now_ms=BOMB_TIME_MS, codec=Codec.ZSTD)
    with RawKafka(node.kafka, timeout=60) as client, Canary(node.kafka) as canary:
        client.create_topic("inflated")
        produce_in_the_end(client, "inflated", bytes(inflated))
        rustlog = BlockingRustLogClient(node.endpoints["rustlog"])
        mlog = BlockingMlogClient([node.endpoints["mlog"]])

        def attack() -> None:
            for _ in range(3):
                with pytest.raises(ClientError):
                    rustlog.fetch("inflated", offset=0, max_bytes=1 << 20)
                assert mlog.fetch_batch("inflated", offset=0, count_max=10) == ()

        canary.check_undisturbed_by(attack)
        rustlog.close()
        mlog.close()
