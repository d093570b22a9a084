"""Leader epochs over the life of a node: they rise, fence what is older, and tell a client where its past ended."""

from collections.abc import Iterator

import pytest
from tests.support.kafka_client import (
    Wanted,
    described,
    epoch_end,
    fetch,
    leader_epoch,
    list_offsets,
    metadata,
    produce_one,
    topic_id,
)
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import EARLIEST, LATEST, RawKafka, batch_of

from headrace.records.batch import iterate_batches
from headrace.wire.kafka.error_codes import ErrorCode

LIVES = 3
MAX_TIMESTAMP = -3
NAME = "through-the-ages"
QUIET = "nothing-but-once"


class History:
    """What was seen of one topic in each life of the node: ten records in each."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.topic_ids: set[bytes] = set()
        self.cluster_ids: set[str | None] = set()
        self.broker_ids: set[int] = set()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, History]]:
    """A node in its third life: stopped once, killed once, ten records in each."""
    history = History()
    with running_node(tmp_path_factory.mktemp("epochs") / "data") as node:
        for life in range(LIVES):
            with RawKafka(node.kafka) as client:
                if life == 0:
                    client.create_topic(NAME)
                    client.create_topic(QUIET)
                    produce_one(client, QUIET, batch_of([b"once"]))
                for number in range(10):
                    row = produce_one(client, NAME, batch_of([b"%d" % number]))
                    assert (row.error_code, row.base_offset) == (0, life * 10 + number)
                history.epochs.append(leader_epoch(client, NAME))
                history.topic_ids.add(topic_id(client, NAME))
                answer = metadata(client, [])
                history.cluster_ids.add(answer.cluster_id)
                history.broker_ids.add(answer.brokers[0].node_id)
            if life == 0:
                node.restart()
            elif life == 1:
                node.kill()
                node.start()
        yield node, history


@pytest.fixture
def node(lived: tuple[NodeProcess, History]) -> NodeProcess:
    return lived[0]


@pytest.fixture
def history(lived: tuple[NodeProcess, History]) -> History:
    return lived[1]


@pytest.mark.trap(15)
def test_epochs_rise_with_every_life_and_begin_at_zero_or_above(history: History) -> None:
    assert history.epochs == sorted(set(history.epochs))
    assert history.epochs[0] >= 0


@pytest.mark.trap(14, 38, 40)
def test_identities_stay(history: History) -> None:
    assert [len(each) for each in (history.topic_ids, history.cluster_ids, history.broker_ids)] == [1, 1, 1]


@pytest.mark.requirement("R4.64", "R3.1")
def test_every_record_of_every_life_is_there(client: RawKafka) -> None:
    assert [(each.offset, each.value) for each in client.read_all(NAME, 0)] == [
        (number, b"%d" % (number % 10)) for number in range(LIVES * 10)
    ]


@pytest.mark.trap(15, 18)
def test_batches_carry_the_epoch_of_the_life_that_wrote_them(client: RawKafka, history: History) -> None:
    epochs: list[int] = []
    while len(epochs) < LIVES * 10:
        # What has been uploaded and what has not come in answers of their own.
        found = client.fetch(NAME, 0, len(epochs))
        headers = [header for header, _ in iterate_batches(found.records or b"")]
        assert headers[0].base_offset == len(epochs)
        epochs += [header.leader_epoch for header in headers]
    assert epochs == [epoch for epoch in history.epochs for _ in range(10)]


@pytest.mark.trap(16)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_epoch_ends_where_the_next_one_begins(client: RawKafka, history: History, version: int) -> None:
    for life, epoch in enumerate(history.epochs):
        found = epoch_end(client, NAME, epoch, version=version)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, (life + 1) * 10)


@pytest.mark.trap(16)
def test_current_epoch_ends_at_the_readable_end(client: RawKafka, history: History) -> None:
    """An end too low is read as lost data."""
    found = epoch_end(client, NAME, history.epochs[-1], current=history.epochs[-1])
    assert found.end_offset == client.offset_at(NAME, 0, LATEST) == client.fetch(NAME, 0, 0).high_watermark


@pytest.mark.trap(16)
def test_epoch_in_which_nothing_was_written_ends_where_the_last_one_did(client: RawKafka, history: History) -> None:
    current = described(client, QUIET).partitions[0].leader_epoch
    assert current > history.epochs[0]
    for epoch in (history.epochs[0], current):
        assert epoch_end(client, QUIET, epoch).end_offset == 1


@pytest.mark.trap(16)
def test_epoch_nobody_has_heard_of_is_undefined(client: RawKafka, history: History) -> None:
    found = epoch_end(client, NAME, history.epochs[-1] + 1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)


@pytest.mark.trap(15)
def test_offset_is_found_in_the_epoch_of_its_record_whoever_leads(client: RawKafka, history: History) -> None:
    """librdkafka reads all again from the earliest offset when that comes back in another epoch than the first time."""
    first, current = history.epochs[0], history.epochs[-1]
    for topic, timestamp, expected in (
        (NAME, EARLIEST, first),
        (NAME, LATEST, current),
        (QUIET, EARLIEST, first),
        (QUIET, LATEST, current),
        (QUIET, MAX_TIMESTAMP, first),
        (QUIET, 0, first),
    ):
        found = list_offsets(client, topic, timestamp)
        assert (found.error_code, found.leader_epoch) == (0, expected), (topic, timestamp)


@pytest.mark.trap(15)
def test_time_is_found_in_the_epoch_of_its_record(client: RawKafka, history: History) -> None:
    for record in client.read_all(NAME, 0):
        found = list_offsets(client, NAME, record.timestamp_ms)
        assert found.leader_epoch == history.epochs[found.offset // 10]


@pytest.mark.trap(17)
def test_older_epoch_is_fenced_and_newer_unknown_everywhere(client: RawKafka, history: History) -> None:
    old, new = history.epochs[0], history.epochs[-1]
    named = topic_id(client, NAME)
    for believed, code in ((old, ErrorCode.FENCED_LEADER_EPOCH), (new + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (new, 0)):
        assert client_code(client, NAME, believed, 11) == code
        assert client_code(client, named, believed, 16) == code
        assert list_offsets(client, NAME, EARLIEST, epoch=believed).error_code == code
        assert epoch_end(client, NAME, old, current=believed).error_code == code


def client_code(client: RawKafka, topic: str | bytes, believed: int, version: int) -> int:
    answer = fetch(client, Wanted(topic, leader_epoch=believed), version=version)
    return answer.responses[0].partitions[0].error_code


@pytest.mark.trap(16, 17)
def test_position_beyond_the_end_of_its_epoch_is_told_where_it_diverges(client: RawKafka, history: History) -> None:
    old, new = history.epochs[0], history.epochs[-1]
    row = fetch(client, Wanted(NAME, 15, leader_epoch=new, last_fetched_epoch=old)).responses[0].partitions[0]
    assert row.error_code == 0
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (old, 10)
    assert bytes(row.records or b"") == b""
    row = fetch(client, Wanted(NAME, 10, leader_epoch=new, last_fetched_epoch=old)).responses[0].partitions[0]
    assert row.diverging_epoch is None
    assert next(iterate_batches(row.records or b""))[0].base_offset == 10
