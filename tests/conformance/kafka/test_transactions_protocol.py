"""Transaction requests byte by byte: outcomes, fencing, visibility, and kill -9 between any two requests."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import raw_groups
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_groups import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    committed,
    fetch_committed,
    init_transactions,
    transactional_batch,
    wait_until_loaded,
)
from tests.support.raw_kafka import LATEST, Producer, RawKafka, produce_request

from headrace.records.batch import iterate_batches
from headrace.records.builder import is_commit_marker
from headrace.records.record import read_batch_records, read_records
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from headrace.wire.kafka.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse
from headrace.wire.kafka.messages.produce_response import ProduceResponse

PATIENCE_S = 60.0
WITHOUT_THE_CHECK = [
    sys.executable,
    "-c",
    "import runpy\n"
    "from headrace.broker.transactions.events import TransactionError\n"
    "from headrace.broker.transactions.service import Transactions\n"
    "Transactions.check_offsets = lambda *_: TransactionError.NONE\n"
    "runpy.run_module('headrace', run_name='__main__')",
]
"""A node as it was before offsets were refused outside of transactions."""


def begin(client: RawKafka, name: str, *, timeout_ms: int = 60_000) -> Producer:
    """A producer, once whoever had the name before is out of the way."""
    answers: list[int] = []

    def is_in() -> bool:
        answer = init_transactions(client, name, timeout_ms=timeout_ms)
        assert answer.error_code in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
        answers[:] = [answer.producer_id, answer.producer_epoch]
        return answer.error_code == 0

    eventually(is_in, PATIENCE_S, f"no producer id for {name}")
    return Producer(answers[0], answers[1])


def write(client: RawKafka, name: str, producer: Producer, values: list[bytes], sequence: int = 0) -> int:
    codes: list[int] = []

    def is_answered() -> bool:
        """An outcome that takes long to be carried out keeps the next transaction waiting, and clients ask again."""
        codes[:] = add_partitions(client, name, producer, name, [0])
        return codes != [ErrorCode.CONCURRENT_TRANSACTIONS]

    eventually(is_answered, PATIENCE_S, f"{name} cannot begin")
    assert codes == [0]
    batch = transactional_batch(values, producer, sequence, now_ms=time.time_ns() // 1_000_000)
    return client.produce(name, 0, batch).error_code


def end(client: RawKafka, name: str, producer: Producer, *, is_commit: bool, version: int = 3) -> int:
    """The answer once there is one: as `write`, it may be told to come back."""
    codes: list[int] = []

    def is_answered() -> bool:
        codes[:] = [raw_groups.end(client, name, producer, is_commit=is_commit, version=version)]
        return codes != [ErrorCode.CONCURRENT_TRANSACTIONS]

    eventually(is_answered, PATIENCE_S, f"{name} cannot end")
    return codes[0]


def is_stable(client: RawKafka, topic: str) -> bool:
    """Whether the partition has records, and every transaction in it its marker."""
    found = fetch_committed(client, topic)
    return found.last_stable_offset == found.high_watermark > 0


def visible(client: RawKafka, topic: str) -> list[bytes]:
    """What a read_committed consumer makes of the partition: aborted ranges skipped as clients do."""
    found = fetch_committed(client, topic)
    assert found.error_code == 0
    aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or [])
    values: list[bytes] = []
    dropping: set[int] = set()
    for header, batch in iterate_batches(found.records or b""):
        while aborted and aborted[0][0] <= header.base_offset:
            dropping.add(aborted.pop(0)[1])
        if header.is_control:
            key = next(read_batch_records(batch, header)).key or b""
            if not is_commit_marker(key):
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            values += [record.value or b"" for record in read_batch_records(batch, header)]
    return values


def producer_state(client: RawKafka, topic: str) -> ProducerState:
    request = DescribeProducersRequest([TopicRequest(topic, [0])])
    answer = client.call(request, 0, DescribeProducersResponse)
    return answer.topics[0].partitions[0].active_producers[0]


@pytest.mark.trap(27, 28)
def test_records_are_hidden_until_the_transaction_commits(client: RawKafka, topic: str) -> None:
    producer = begin(client, topic)
    assert write(client, topic, producer, [b"a", b"b"]) == 0
    waiting = fetch_committed(client, topic)
    assert (waiting.high_watermark, waiting.last_stable_offset) == (2, 0)
    assert bytes(waiting.records or b"") == b""
    assert producer_state(client, topic).current_txn_start_offset == 0
    assert producer_state(client, topic).coordinator_epoch == -1
    assert end(client, topic, producer, is_commit=True) == 0
    eventually(lambda: visible(client, topic) == [b"a", b"b"], PATIENCE_S, "the commit is not visible")
    found = fetch_committed(client, topic)
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert [header.is_control for header, _ in iterate_batches(found.records or b"")] == [False, True]
    assert producer_state(client, topic).current_txn_start_offset == -1
    assert producer_state(client, topic).coordinator_epoch >= 0


@pytest.mark.trap(6, 28)
def test_aborted_records_are_listed_for_committed_readers_only(client: RawKafka, topic: str) -> None:
    producer = begin(client, topic)
    write(client, topic, producer, [b"gone"])
    end(client, topic, producer, is_commit=False)
    write(client, topic, producer, [b"kept"], sequence=1)
    end(client, topic, producer, is_commit=True)
    eventually(lambda: visible(client, topic) == [b"kept"], PATIENCE_S, "the outcome is not visible")
    aborted = fetch_committed(client, topic).aborted_transactions or []
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(producer.id, 0)]
    plain = client.fetch(topic, 0, 0)
    assert plain.aborted_transactions is None
    assert [record.value for record in read_records(plain.records or b"")] == [b"gone", b"kept"]
    # Behind the aborted range the list is empty, not null.
    assert fetch_committed(client, topic, offset=2).aborted_transactions == []


@pytest.mark.trap(31)
def test_newcomer_fences_its_predecessor_and_aborts_what_it_left(client: RawKafka, topic: str) -> None:
    old = begin(client, topic)
    write(client, topic, old, [b"left"])
    assert init_transactions(client, topic).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    new = begin(client, topic)
    assert (new.id, new.epoch) == (old.id, old.epoch + 2)
    assert visible(client, topic) == []
    assert end(client, topic, old, is_commit=True, version=2) == ErrorCode.PRODUCER_FENCED
    assert end(client, topic, old, is_commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert add_partitions(client, topic, old, topic, [0], version=2) == [ErrorCode.PRODUCER_FENCED]
    assert add_partitions(client, topic, old, topic, [0], version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    by_version = {
        version: init_transactions(client, topic, expected=old, version=version).error_code for version in (3, 4)
    }
    assert by_version == {3: ErrorCode.INVALID_PRODUCER_EPOCH, 4: ErrorCode.PRODUCER_FENCED}
    batch = transactional_batch([b"zombie"], old, 1, now_ms=time.time_ns() // 1_000_000)
    assert client.produce(topic, 0, batch).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.trap(30)
def test_transaction_that_takes_too_long_is_aborted(client: RawKafka, topic: str) -> None:
    refused = init_transactions(client, topic, timeout_ms=900_001)
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    producer = begin(client, topic, timeout_ms=300)
    began = time.monotonic()
    # On a slow day its time is over before the record arrives, which is then refused; the marker is there either way.
    write(client, topic, producer, [b"slow"])
    eventually(lambda: is_stable(client, topic), PATIENCE_S, "the LSO is still held")
    assert time.monotonic() - began > 0.25, "its time was not over yet"
    assert visible(client, topic) == []
    assert end(client, topic, producer, is_commit=True) == ErrorCode.PRODUCER_FENCED


def test_requests_of_strangers_get_kafkas_codes(client: RawKafka, topic: str) -> None:
    producer = begin(client, topic)
    other = Producer(producer.id + 1000, 0)
    assert end(client, "nobody", producer, is_commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(client, topic, other, is_commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_partitions(client, topic, producer, topic, [0, 9]) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert init_transactions(client, "").error_code == ErrorCode.INVALID_REQUEST
    # Nothing was begun: ending it is no failure (Flink does that when it recovers).
    assert end(client, topic, producer, is_commit=True) == 0


def test_batch_that_comes_after_its_transaction_is_refused(client: RawKafka, topic: str) -> None:
    """Taken in, it would open a transaction that nobody ends, and hold the partition's readers for good."""
    producer = begin(client, topic)
    assert write(client, topic, producer, [b"in time"]) == 0
    assert end(client, topic, producer, is_commit=False) == 0
    now_ms = time.time_ns() // 1_000_000
    late = transactional_batch([b"late"], producer, 1, now_ms=now_ms)
    assert client.produce(topic, 0, late).error_code == ErrorCode.INVALID_TXN_STATE
    newest = client.call(produce_request(topic, 0, late), 11, ProduceResponse)
    assert newest.responses[0].partition_responses[0].error_code == ErrorCode.TRANSACTION_ABORTABLE
    stranger = transactional_batch([b"x"], Producer(producer.id + 1000, 0), 0, now_ms=now_ms)
    assert client.produce(topic, 0, stranger).error_code == ErrorCode.INVALID_TXN_STATE
    eventually(lambda: fetch_committed(client, topic).last_stable_offset == 2, PATIENCE_S, "the LSO is held")


@pytest.mark.parametrize("version", range(5))
def test_repeated_end_is_answered_like_the_original(client: RawKafka, topic: str, version: int) -> None:
    producer = begin(client, topic)
    write(client, topic, producer, [b"x"])
    assert end(client, topic, producer, is_commit=True, version=version) == 0
    assert end(client, topic, producer, is_commit=True, version=version) == 0
    assert end(client, topic, producer, is_commit=False, version=version) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.trap(29)
def test_offsets_in_a_transaction_wait_for_its_outcome(client: RawKafka, topic: str) -> None:
    for sequence, is_commit in enumerate((False, True)):
        producer = begin(client, topic)
        group = f"{topic}-{is_commit}"
        assert add_offsets(client, topic, producer, group) == 0
        assert commit_in_transaction(client, topic, producer, group, topic, 42 + sequence) == 0
        assert committed(client, group, topic) == (-1, 0)
        unstable = committed(client, group, topic, require_stable=True)
        assert unstable == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert end(client, topic, producer, is_commit=is_commit) == 0
        expected = (42 + sequence, 0) if is_commit else (-1, 0)
        eventually(_has(client, group, topic, expected), PATIENCE_S, "the offsets did not follow the outcome")


def _has(client: RawKafka, group: str, topic: str, expected: tuple[int, int]) -> Callable[[], bool]:
    return lambda: committed(client, group, topic, require_stable=True) == expected


def test_note_with_an_offset_has_a_limit_in_transactions_too(client: RawKafka, topic: str) -> None:
    producer = begin(client, topic)
    assert add_offsets(client, topic, producer, "g") == 0
    assert commit_in_transaction(client, topic, producer, "g", topic, 1, metadata="x" * 4096) == 0
    code = commit_in_transaction(client, topic, producer, "g", topic, 2, metadata="x" * 4097)
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", range(5))
def test_offsets_outside_of_a_transaction_are_refused(client: RawKafka, topic: str, version: int) -> None:
    """Taken, they would be unstable for good, or committed by the producer's next transaction (KIP-890)."""
    group = f"{topic}-{version}"
    refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    producer = begin(client, topic)

    def commit() -> int:
        return commit_in_transaction(client, topic, producer, group, topic, 1, version=version)

    assert commit() == refused
    write(client, topic, producer, [b"x"])
    assert commit() == refused, "a transaction is open, but not for these offsets"
    assert add_offsets(client, topic, producer, group) == 0
    assert commit() == 0
    assert end(client, topic, producer, is_commit=False) == 0
    eventually(lambda: commit() == refused, PATIENCE_S, "taken when the transaction was over")
    assert committed(client, group, topic, require_stable=True) == (-1, 0)


def test_offsets_that_an_earlier_version_took_outside_of_a_transaction_are_dropped(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", program=WITHOUT_THE_CHECK)
    try:
        node.start()
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            producer = begin(client, "x")
            assert commit_in_transaction(client, "x", producer, "g", "t", 9) == 0
            assert committed(client, "g", "t", require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        node.program = None
        for _ in range(2):
            node.kill()
            node.start()
            with RawKafka(node.kafka) as client:
                wait_until_loaded(client)
                assert committed(client, "g", "t", require_stable=True) == (-1, 0)
        with RawKafka(node.kafka) as client:
            assert add_offsets(client, "x", producer, "g") == 0
            assert end(client, "x", producer, is_commit=True) == 0
            eventually(_has(client, "g", "t", (-1, 0)), PATIENCE_S, "the next transaction has committed them")
    finally:
        if node.process is not None:
            node.kill()


def test_zombie_cannot_commit_offsets(client: RawKafka, topic: str) -> None:
    old = begin(client, topic)
    begin(client, topic)
    code = commit_in_transaction(client, topic, old, "g", topic, 1)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_transactions_are_listed_and_described(client: RawKafka, topic: str) -> None:
    producer = begin(client, topic)
    write(client, topic, producer, [b"x"])
    [described, missing] = client.call(
        DescribeTransactionsRequest([topic, "nobody"]), 0, DescribeTransactionsResponse
    ).transaction_states
    assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.id)
    assert [(each.topic, each.partitions) for each in described.topics] == [(topic, [0])]
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def listed(request: ListTransactionsRequest, version: int = 2) -> list[str]:
        answer = client.call(request, version, ListTransactionsResponse)
        return [each.transactional_id for each in answer.transaction_states]

    assert topic in listed(ListTransactionsRequest())
    assert topic in listed(ListTransactionsRequest(["Ongoing"], [producer.id]), 0)
    assert topic not in listed(ListTransactionsRequest(["Empty"]))
    assert topic not in listed(ListTransactionsRequest(duration_filter=3_600_000), 1)
    assert listed(ListTransactionsRequest(transactional_id_pattern=f"{topic}")) == [topic]
    unknown = client.call(ListTransactionsRequest(["Nonsense"]), 0, ListTransactionsResponse)
    assert unknown.unknown_state_filters == ["Nonsense"]
    end(client, topic, producer, is_commit=False)


STEPS = ["init", "add", "produce", "offsets", "commit-offsets", "end"]


@pytest.mark.slow
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("last", STEPS)
def test_kill_after_any_step_leaves_all_or_nothing(tmp_path: Path, last: str, is_commit: bool) -> None:
    """After the restart the same producer goes on if its outcome was durable; otherwise a newcomer clears the way."""
    with running_node(tmp_path / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            producer = begin(client, "t")
            steps: dict[str, Callable[[], int]] = {
                "init": lambda: 0,
                "add": lambda: add_partitions(client, "t", producer, "t", [0])[0],
                "produce": lambda: write(client, "t", producer, [b"x"]),
                "offsets": lambda: add_offsets(client, "t", producer, "g"),
                "commit-offsets": lambda: commit_in_transaction(client, "t", producer, "g", "t", 5),
                "end": lambda: end(client, "t", producer, is_commit=is_commit),
            }
            for step in STEPS[: STEPS.index(last) + 1]:
                assert steps[step]() == 0
        node.kill()
        node.start()
        with RawKafka(node.kafka) as client:
            wait_until_loaded(client)
            is_decided = last == "end" and is_commit
            newcomer = begin(client, "t")
            assert newcomer.id == producer.id
            assert newcomer.epoch > producer.epoch
            eventually(
                lambda: fetch_committed(client, "t").last_stable_offset == client.offset_at("t", 0, LATEST),
                PATIENCE_S,
                "the LSO is held by a dead producer",
            )
            assert visible(client, "t") == ([b"x"] if is_decided else [])
            expected = (5, 0) if is_decided else (-1, 0)
            assert committed(client, "g", "t", require_stable=True) == expected
            # The coordinator is as good as new.
            assert write(client, "t", newcomer, [b"y"]) == 0
            assert end(client, "t", newcomer, is_commit=True) == 0
            eventually(lambda: visible(client, "t")[-1:] == [b"y"], PATIENCE_S, "nothing can be committed any more")
