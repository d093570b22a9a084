"""The numbers of RustLog: frame limits, message codes, error codes, connection states.

The message codes appear in no JSON payload; captures, metrics and the inspector use them.
"""

from enum import Enum, IntEnum
from typing import Final

FRAME_BYTES_MAX: Final = 10_485_760
"""MAX_FRAME_SIZE: payload bytes of one frame, either way."""
FRAME_BYTES_MIN: Final = 1
LENGTH_FIELD_SIZE: Final = 4

RECORDS_PER_PRODUCE_MAX: Final = 1000
RECORD_BYTES_MAX: Final = 10_485_760
"""Bytes of one record after Base64 decoding. No frame can carry one this large; the door may set it lower."""
PARTITIONS_PER_TOPIC_MAX: Final = 1000

RESPONSE_BIT: Final = 0x80
"""A response's code is its request's plus this; `Error` alone stands outside the rule."""


class RequestCode(IntEnum):
    Produce = 0x01
    Fetch = 0x02
    OffsetCommit = 0x03
    OffsetFetch = 0x04
    CreateTopic = 0x05
    ListTopics = 0x06
    DescribeTopic = 0x07
    DescribePartition = 0x08
    MetricsFetch = 0x09
    Ping = 0x0A


class ResponseCode(IntEnum):
    ProduceResponse = 0x81
    FetchResponse = 0x82
    OffsetCommitResponse = 0x83
    OffsetFetchResponse = 0x84
    CreateTopicResponse = 0x85
    ListTopicsResponse = 0x86
    DescribeTopicResponse = 0x87
    DescribePartitionResponse = 0x88
    MetricsFetchResponse = 0x89
    Pong = 0x8A
    Error = 0xFF


def response_code(request: RequestCode) -> ResponseCode:
    """The code of the response that answers `request` when all goes well."""
    return ResponseCode(request + RESPONSE_BIT)


class ErrorCode(IntEnum):
    """4xx: the client must change the request. 5xx: it may try again, later."""

    INVALID_REQUEST = 400
    TOPIC_NOT_FOUND = 404
    PARTITION_NOT_FOUND = 405
    RECORD_TOO_LARGE = 413
    OFFSET_OUT_OF_RANGE = 416
    INTERNAL_SERVER_ERROR = 500
    STORAGE_ERROR = 503
    INSUFFICIENT_SPACE = 507


def is_client_error(code: int) -> bool:
    return 400 <= code < 500


class ConnectionState(Enum):
    """Where one connection stands, seen from either side.

    TCP_CONNECTING -> CONNECTED -> REQUEST_ACTIVE -> CONNECTED -> CLOSED; a protocol violation leads from
    CONNECTED or REQUEST_ACTIVE to ERROR, and ERROR only to CLOSED.
    """

    TCP_CONNECTING = "TCP_CONNECTING"
    CONNECTED = "CONNECTED"
    REQUEST_ACTIVE = "REQUEST_ACTIVE"
    ERROR = "ERROR"
    CLOSED = "CLOSED"


TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.TCP_CONNECTING: frozenset({ConnectionState.CONNECTED, ConnectionState.CLOSED}),
    ConnectionState.CONNECTED: frozenset(
        {ConnectionState.REQUEST_ACTIVE, ConnectionState.ERROR, ConnectionState.CLOSED}
    ),
    ConnectionState.REQUEST_ACTIVE: frozenset(
        {ConnectionState.CONNECTED, ConnectionState.ERROR, ConnectionState.CLOSED}
    ),
    ConnectionState.ERROR: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}
