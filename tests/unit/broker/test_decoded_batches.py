"""A batch read piece by piece is taken apart once; what is kept stays within its budget."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker import decoded_batches
from headrace.broker.decoded_batches import DecodedBatches
from headrace.log.partition import PartitionLog
from headrace.records.batch import BatchHeader, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_batch_records


def batch_of(*values: bytes) -> bytes:
    return bytes(build_batch([NewRecord(value=value) for value in values], now_ms=1))


def partition(index: int = 0) -> PartitionLog:
    return cast(PartitionLog, SimpleNamespace(topic_id=bytes(16), index=index))


def test_a_batch_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_apart = 0

    def counting(batch: bytes, header: BatchHeader, **limits: Any) -> Iterator[Record]:  # Any: passed on as they came
        nonlocal taken_apart
        taken_apart += 1
        return read_batch_records(batch, header, **limits)

    monkeypatch.setattr(decoded_batches, "read_batch_records", counting)
    decoded, batch = DecodedBatches(), batch_of(b"a", b"b")
    for _ in range(3):
        records = decoded.records_of(partition(), read_header(batch), batch)
        assert [record.value for record in records] == [b"a", b"b"]
    assert taken_apart == 1


def test_places_and_contents_are_told_apart() -> None:
    decoded = DecodedBatches()
    first, second = batch_of(b"a"), batch_of(b"b")
    assert decoded.records_of(partition(0), read_header(first), first)[0].value == b"a"
    assert decoded.records_of(partition(1), read_header(second), second)[0].value == b"b"
    # The same place in another life of the partition.
    assert decoded.records_of(partition(0), read_header(second), second)[0].value == b"b"


def test_the_least_recently_used_leaves_first_and_the_budget_holds() -> None:
    decoded = DecodedBatches(bytes_max=3_000)
    batches = [batch_of(b"%d" % number * 500) for number in range(6)]
    for batch in batches:
        decoded.records_of(partition(), read_header(batch), batch)
        decoded.records_of(partition(), read_header(batches[0]), batches[0])
        assert decoded.kept_bytes <= 3_000
    kept = {key[3] for key in decoded._kept}
    assert read_header(batches[0]).crc in kept
    assert read_header(batches[1]).crc not in kept


def test_a_batch_over_the_budget_is_read_and_not_kept() -> None:
    decoded, batch = DecodedBatches(bytes_max=100), batch_of(bytes(1_000))
    assert len(decoded.records_of(partition(), read_header(batch), batch)) == 1
    assert decoded.kept_bytes == 0
