"""The same log when its records have left for object storage: bytes, offsets, times, producers and transactions."""

import struct
from collections.abc import Iterator

import pytest
from tests.support.kafka_client import Wanted, epoch_end, fetch, leader_epoch, list_offsets, produce_one
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_groups import add_partitions, end, init_transactions, transactional_batch
from tests.support.raw_kafka import EARLIEST, LATEST, Producer, RawKafka, batch_of

from headrace.records.batch import Codec, iterate_batches
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse

BASE = 1_700_000_000_000
NAME = "tiered"
EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP = -4, -5, -3
BATCHES = 25
PER_BATCH = 4


class Written:
    """What went into the topic before it was uploaded."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.producer = Producer(-1, -1)
        self.aborted = Producer(-1, -1)
        self.end = 0
        self.epoch = -1


def made(number: int) -> bytearray:
    records = [
        NewRecord(key=b"k", value=b"%d " % number * 200, timestamp_ms=BASE + number * 1000 + index)
        for index in range(PER_BATCH)
    ]
    return build_batch(records, now_ms=0, codec=list(Codec)[number % 5])


def fill(client: RawKafka) -> Written:
    written = Written()
    client.create_topic(NAME)
    written.epoch = leader_epoch(client, NAME)
    for number in range(BATCHES):
        batch = made(number)
        offset = produce_one(client, NAME, batch).base_offset
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">i", batch, 12, written.epoch)
        written.batches.append(bytes(batch))
    written.producer = client.init_producer()
    for sequence in range(5):
        assert produce_one(client, NAME, batch_of([b"i"], producer=written.producer, sequence=sequence)).error_code == 0
    answer = init_transactions(client, NAME)
    written.aborted = Producer(answer.producer_id, answer.producer_epoch)
    assert add_partitions(client, NAME, written.aborted, NAME, [0]) == [0]
    batch = transactional_batch([b"a", b"b"], written.aborted, 0, now_ms=BASE)
    assert produce_one(client, NAME, batch).error_code == 0
    assert end(client, NAME, written.aborted, is_commit=False) == 0
    written.end = BATCHES * PER_BATCH + 5 + 2 + 1
    eventually(lambda: client.offset_at(NAME, 0, LATEST) == written.end, 60, "no abort marker")
    return written


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Written]]:
    """Everything uploaded, and the node started anew: nothing is left in memory."""
    settings = {"tier.upload.interval.ms": 50}
    with running_node(tmp_path_factory.mktemp("tiered") / "data", settings) as node:
        with RawKafka(node.kafka) as client:
            written = fill(client)
            eventually(lambda: list_offsets(client, NAME, LATEST_TIERED).offset == written.end - 1, 60, "not uploaded")
        node.restart()
        yield node, written


@pytest.fixture
def node(tiered: tuple[NodeProcess, Written]) -> NodeProcess:
    return tiered[0]


@pytest.fixture
def written(tiered: tuple[NodeProcess, Written]) -> Written:
    return tiered[1]


@pytest.mark.requirement("R4.48", "R4.64", "X4.2")
@pytest.mark.trap(18, 20)
def test_batches_come_back_byte_exact(client: RawKafka, written: Written) -> None:
    found = bytes(client.fetch(NAME, 0, 0, max_bytes=1 << 22, wait_ms=1000).records or b"")
    whole = b"".join(written.batches)
    assert found[: len(whole)] == whole


@pytest.mark.requirement("R4.42")
@pytest.mark.trap(10, 11)
def test_limits_and_offsets_hold_as_in_memory(client: RawKafka, written: Written) -> None:
    for offset in range(0, BATCHES * PER_BATCH, 7):
        place = offset // PER_BATCH
        row = client.fetch(NAME, 0, offset, max_bytes=1)
        assert bytes(row.records or b"") == written.batches[place]
        # More may come than memory would give, since the store is read in larger pieces; never less than one.
        three = sum(map(len, written.batches[place : place + 3]))
        headers = [each for each, _ in iterate_batches(client.fetch(NAME, 0, offset, max_bytes=three).records or b"")]
        assert headers[0].base_offset == place * PER_BATCH
        assert len(headers) >= 1


@pytest.mark.requirement("R3.1")
def test_reading_from_the_start_meets_every_record_once(client: RawKafka, written: Written) -> None:
    offset, seen = 0, []
    while offset < written.end:
        headers = [each for each, _ in iterate_batches(client.fetch(NAME, 0, offset, max_bytes=3000).records or b"")]
        assert headers
        seen += [each.base_offset for each in headers]
        offset = headers[-1].end_offset
    data = [number * PER_BATCH for number in range(BATCHES)]
    rest = BATCHES * PER_BATCH
    assert seen == [*data, *range(rest, rest + 5), rest + 5, rest + 7]


def test_ends_of_the_log_say_where_it_lies(client: RawKafka, written: Written) -> None:
    assert client.offset_at(NAME, 0, EARLIEST) == 0
    assert client.offset_at(NAME, 0, LATEST) == written.end
    assert list_offsets(client, NAME, LATEST_TIERED).offset == written.end - 1
    local = list_offsets(client, NAME, EARLIEST_LOCAL).offset
    assert 0 <= local <= written.end


def test_times_are_found_in_object_storage(client: RawKafka, written: Written) -> None:
    for number in (0, 7, BATCHES - 1):
        found = list_offsets(client, NAME, BASE + number * 1000 + 2)
        assert (found.offset, found.timestamp) == (number * PER_BATCH + 2, BASE + number * 1000 + 2)
        between = list_offsets(client, NAME, BASE + number * 1000 - 500)
        assert (between.offset, between.timestamp) == (number * PER_BATCH, BASE + number * 1000)
    newest = list_offsets(client, NAME, MAX_TIMESTAMP)
    assert newest.error_code == 0
    assert newest.timestamp >= BASE + (BATCHES - 1) * 1000


@pytest.mark.trap(28)
def test_aborted_transactions_are_still_told(client: RawKafka, written: Written) -> None:
    offset = BATCHES * PER_BATCH
    row = fetch(client, Wanted(NAME, offset), isolation=1, wait_ms=1000).responses[0].partitions[0]
    assert row.last_stable_offset == written.end
    aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or []]
    assert aborted == [(written.aborted.id, offset + 5)]
    uncommitted = fetch(client, Wanted(NAME, offset), wait_ms=1000).responses[0].partitions[0]
    assert uncommitted.aborted_transactions is None


@pytest.mark.trap(25)
def test_producers_are_still_known(client: RawKafka, written: Written) -> None:
    for sequence in range(5):
        row = produce_one(client, NAME, batch_of([b"i"], producer=written.producer, sequence=sequence))
        assert (row.error_code, row.base_offset) == (0, BATCHES * PER_BATCH + sequence)
    assert client.offset_at(NAME, 0, LATEST) == written.end


@pytest.mark.trap(15, 16)
def test_epochs_are_still_known(client: RawKafka, written: Written) -> None:
    assert leader_epoch(client, NAME) > written.epoch
    found = epoch_end(client, NAME, written.epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, written.epoch, written.end)


@pytest.mark.requirement("R3.1")
def test_front_that_was_deleted_inside_a_batch_stays_deleted(node: NodeProcess, written: Written) -> None:
    with RawKafka(node.kafka) as client:
        client.create_topic("cut")
        produce_one(client, "cut", batch_of([b"%d" % number for number in range(10)]))
        wanted = DeleteRecordsTopic("cut", [DeleteRecordsPartition(0, 4)])
        client.call(DeleteRecordsRequest([wanted], 5000), 2, DeleteRecordsResponse)
        produce_one(client, "cut", batch_of([b"%d" % number for number in range(10, 20)]))
        eventually(lambda: list_offsets(client, "cut", LATEST_TIERED).offset == 19, 60, "not uploaded")
    node.restart()
    with RawKafka(node.kafka) as client:
        assert [record.offset for record in client.read_all("cut", 0)] == list(range(4, 20))
        assert list_offsets(client, "cut", 0).offset == 4


@pytest.mark.requirement("R3.50", "R3.51", "R4.52")
def test_acknowledgement_does_not_wait_for_the_upload(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The upload is an hour away; the answer, the record and the end of the log are not."""
    settings = {"tier.upload.interval.ms": 3_600_000}
    with (
        running_node(tmp_path_factory.mktemp("later") / "data", settings) as node,
        RawKafka(node.kafka) as client,
    ):
        client.create_topic("later")
        assert produce_one(client, "later", batch_of([b"x"])).error_code == 0
        assert [record.value for record in client.read_all("later", 0)] == [b"x"]
        assert list_offsets(client, "later", LATEST_TIERED).offset == -1
        assert list_offsets(client, "later", EARLIEST_LOCAL).offset == 0
