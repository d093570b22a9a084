"""The load's frames, read back by clients that headrace did not write."""

import io
import struct
import warnings

import pytest
from kio.schema.fetch.v12 import request as fetch_v12
from kio.schema.produce.v9 import request as produce_v9
from kio.serial import entity_reader

from headrace.bench.frames import (
    api_versions_request,
    fetch_exchange,
    find_problem,
    hello_exchange,
    produce_exchange,
    record_batch,
    rustlog_produce_exchange,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas the old way
    from kafka.record import MemoryRecords


def _header_bytes(request: bytes) -> int:
    """Length, api key, version, correlation id, client id, tags."""
    (client_id_bytes,) = struct.unpack_from(">h", request, 12)
    return 4 + 2 + 2 + 4 + 2 + int(client_id_bytes) + 1


def _body(request: bytes) -> bytes:
    assert struct.unpack_from(">i", request) == (len(request) - 4,)
    return request[_header_bytes(request) :]


def test_a_batch_is_what_another_client_reads() -> None:
    batch = record_batch([b"one", b"two" * 100], timestamp_ms=1_700_000_000_000)
    records = MemoryRecords(batch)
    read = records.next_batch()
    assert read.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value) for record in read] == [
        (0, 1_700_000_000_000, None, b"one"),
        (1, 1_700_000_000_000, None, b"two" * 100),
    ]


def test_a_produce_request_decodes_elsewhere() -> None:
    batch = record_batch([b"x" * 100], timestamp_ms=1)
    exchange = produce_exchange(topic="some-topic", partition=3, batch=batch)
    decoded, read_bytes = entity_reader(produce_v9.ProduceRequest)(_body(exchange.request), 0)
    assert read_bytes == len(_body(exchange.request))
    assert decoded.acks == -1
    (topic,) = decoded.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records)) == ("some-topic", 3, batch)


def test_a_fetch_request_decodes_elsewhere() -> None:
    exchange = fetch_exchange(topic="some-topic", partition=3, offset=42, bytes_max=1000, bytes_expected=500)
    decoded, read_bytes = entity_reader(fetch_v12.FetchRequest)(_body(exchange.request), 0)
    assert read_bytes == len(_body(exchange.request))
    (topic,) = decoded.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("some-topic", 3, 42)
    assert decoded.max_bytes == partition.partition_max_bytes == 1000


def test_api_versions_is_a_frame_of_its_length() -> None:
    request = api_versions_request()
    assert struct.unpack_from(">ihh", request) == (len(request) - 4, 18, 0)


@pytest.mark.parametrize("code", [0, 3, -1])
def test_an_error_code_in_a_reply_is_found_where_the_exchange_says(code: int) -> None:
    exchange = produce_exchange(topic="t", partition=0, batch=record_batch([b"x"], timestamp_ms=1))
    reply = io.BytesIO()
    reply.write(struct.pack(">ib", 7, 0))  # correlation id, tags
    reply.write(b"\x02\x02t\x02" + struct.pack(">ih", 0, code) + struct.pack(">qqq", 5, -1, 0) + b"\x01\x00\x00\x00")
    reply.write(struct.pack(">i", 0) + b"\x00")
    frame = struct.pack(">i", len(reply.getvalue())) + reply.getvalue()
    problem = find_problem(exchange, frame, len(frame))
    assert problem == (f"a reply carries error code {code}" if code else None)


def test_a_fetch_that_brought_too_little_is_a_problem() -> None:
    exchange = fetch_exchange(topic="t", partition=0, offset=0, bytes_max=1000, bytes_expected=1000)
    frame = bytes(100)
    assert find_problem(exchange, frame, len(frame)) is not None


def test_a_rustlog_reply_of_another_type_is_a_problem() -> None:
    exchange = rustlog_produce_exchange(topic="t", partition=0, record=b"Hello World")
    assert b"SGVsbG8gV29ybGQ=" in exchange.request
    good, bad = b'....{"type":"ProduceResponse","base_offset":0}', b'....{"type":"Error","code":404}'
    assert exchange.head_bytes <= len(good)
    assert find_problem(exchange, good, len(good)) is None
    assert find_problem(exchange, bad, len(bad)) is not None


def test_a_greeting_is_known_for_both_doors() -> None:
    assert find_problem(hello_exchange("rustlog"), b'....{"type":"Pong"}', 19) is None
    assert find_problem(hello_exchange("kafka"), bytes(20), 20) is None
