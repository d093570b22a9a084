"""Frames for the raw load: just the requests it sends, and how to tell a good reply.

Built from the protocols' descriptions and independent of `headrace.wire`. Sans-IO. Every frame is complete, with its
length in front, and is sent again and again as it is: nothing in it changes from one request to the next.
"""

import base64
import json
import struct
from typing import Final

import crc32c
import msgspec

_CLIENT_ID: Final = b"headrace-bench"
_CORRELATION_ID: Final = 7

_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18

_LENGTH_BYTES: Final = 4

_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BATCH_CRC_POSITION: Final = 17
_BATCH_CHECKED_FROM: Final = 21


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request and what its reply must look like."""

    request: bytes
    error_positions: tuple[int, ...] = ()
    """Where error codes stand, from the start of the reply's frame, its length included; all must be zero."""
    reply_start: bytes = b""
    """What the reply must begin with, behind its length."""
    reply_bytes_min: int = 0
    """A good reply is at least this long; for a fetch, one that brought the records asked for."""

    @property
    def head_bytes(self) -> int:
        """How much of the reply has to be kept for a look."""
        return max(_LENGTH_BYTES + len(self.reply_start), *(position + 2 for position in self.error_positions), 0)


def api_versions_request() -> bytes:
    """ApiVersions v0: the one request that every broker answers."""
    return _sized(struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID)


def produce_exchange(*, topic: str, partition: int, batch: bytes) -> Exchange:
    """Produce v9, acks=all, one batch for one partition."""
    name = topic.encode()
    body = b"".join(
        (
            _header(_PRODUCE, 9),
            b"\x00",  # no transactional id
            struct.pack(">hi", -1, 30_000),  # acks, timeout
            b"\x02",  # one topic
            _compact_string(name),
            b"\x02",  # one partition
            struct.pack(">i", partition),
            _uvarint(len(batch) + 1),
            batch,
            b"\x00\x00\x00",  # no tags: partition, topic, request
        )
    )
    # length 4, correlation id 4, tags 1, topics 1, name, partitions 1, index 4, error code.
    error_position = 4 + 4 + 1 + 1 + len(_compact_string(name)) + 1 + 4
    return Exchange(request=_sized(body), error_positions=(error_position,), reply_bytes_min=error_position + 2)


def fetch_exchange(*, topic: str, partition: int, offset: int, bytes_max: int, bytes_expected: int) -> Exchange:
    """Fetch v12, sessionless, one partition."""
    name = topic.encode()
    body = b"".join(
        (
            _header(_FETCH, 12),
            struct.pack(">iiiibii", -1, 500, 1, bytes_max, 0, 0, -1),
            b"\x02",  # one topic
            _compact_string(name),
            b"\x02",  # one partition
            struct.pack(">iiqiqi", partition, -1, offset, -1, -1, bytes_max),
            b"\x00\x00",  # no tags: partition, topic
            b"\x01",  # no forgotten topics
            b"\x01",  # no rack
            b"\x00",  # no tags: request
        )
    )
    # length 4, correlation id 4, tags 1, throttle 4, error code,
    # session 4, topics 1, name, partitions 1, index 4, error code.
    whole = 4 + 4 + 1 + 4
    of_partition = whole + 2 + 4 + 1 + len(_compact_string(name)) + 1 + 4
    return Exchange(
        request=_sized(body),
        error_positions=(whole, of_partition),
        reply_bytes_min=of_partition + 2 + bytes_expected,
    )


def hello_exchange(door: str) -> Exchange:
    """The shortest exchange that a door answers."""
    if door == "rustlog":
        return Exchange(request=_sized(b'{"type":"Ping"}'), reply_start=b'{"type":"Pong"')
    return Exchange(request=api_versions_request(), error_positions=(8,), reply_bytes_min=10)


def rustlog_produce_exchange(*, topic: str, partition: int, record: bytes) -> Exchange:
    request = {
        "type": "Produce",
        "topic": topic,
        "partition": partition,
        "records": [base64.b64encode(record).decode()],
    }
    return Exchange(request=_sized(json.dumps(request).encode()), reply_start=b'{"type":"ProduceResponse"')


def find_problem(exchange: Exchange, head: bytes | bytearray, reply_bytes: int) -> str | None:
    """What is wrong with a reply of `reply_bytes` that begins with `head`; None if it is good."""
    for position in exchange.error_positions:
        code = int.from_bytes(head[position : position + 2], signed=True)
        if code:
            return f"a reply carries error code {code}"
    start = bytes(head[_LENGTH_BYTES : _LENGTH_BYTES + len(exchange.reply_start)])
    if start != exchange.reply_start:
        return f"a reply begins with {start!r}, not {exchange.reply_start!r}"
    if reply_bytes < exchange.reply_bytes_min:
        return f"a reply of {reply_bytes} bytes where {exchange.reply_bytes_min} were due"
    return None


def record_batch(values: list[bytes], *, timestamp_ms: int) -> bytes:
    """An uncompressed record batch v2 without producer id: offsets from 0, one time, no keys."""
    records = b"".join(_record(index, value) for index, value in enumerate(values))
    batch = bytearray(
        _BATCH_HEADER.pack(
            0,  # base offset
            _BATCH_HEADER.size - 12 + len(records),
            -1,  # leader epoch
            2,  # magic
            0,  # crc, below
            0,  # attributes
            len(values) - 1,
            timestamp_ms,
            timestamp_ms,
            -1,  # producer id
            -1,  # producer epoch
            -1,  # base sequence
            len(values),
        )
    )
    batch += records
    struct.pack_into(">I", batch, _BATCH_CRC_POSITION, crc32c.crc32c(batch[_BATCH_CHECKED_FROM:]))
    return bytes(batch)


def _record(index: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(index) + _varint(-1) + _varint(len(value)) + value + b"\x00"
    return _varint(len(body)) + body


def _header(api_key: int, version: int) -> bytes:
    """Request header v2: the client id is not compact, the tags are there."""
    return struct.pack(">hhih", api_key, version, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID + b"\x00"


def _sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _compact_string(text: bytes) -> bytes:
    return _uvarint(len(text) + 1) + text


def _varint(value: int) -> bytes:
    return _uvarint((value << 1) ^ (value >> 63))


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
