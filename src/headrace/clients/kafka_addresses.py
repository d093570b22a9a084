"""Which answers of Kafka's protocol tell a client where to go, and how those addresses are exchanged for others.

A proxy looks at requests as they pass to know what their answers are, and touches those answers alone; everything else goes through as it is.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol

from headrace.errors import MalformedRequest
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import encode_response, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

Place = tuple[str, int]
Exchange = Callable[[Place], Place]

ASKED_MAX: Final = 1_000
"""Requests under way whose answers tell addresses; of more, the oldest are forgotten, and pass as they are."""
_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">hhi")
_ANSWERS: Final[dict[int, type[Message]]] = {
    ApiKey.METADATA: MetadataResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterResponse,
}


class Requests:
    """Looks at what a client sends, and remembers by correlation id what will be answered with addresses."""

    def __init__(self) -> None:
        self.asked: dict[int, tuple[int, int]] = {}
        """API key and version."""
        self._start = bytearray()
        self._left = 0
        """Of the frame that is passing."""

    def look(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                passing = min(self._left, len(data) - at)
                self._left -= passing
                at += passing
                continue
            wanted = _SIZE.size + _START.size - len(self._start)
            self._start += data[at : at + wanted]
            at += min(wanted, len(data) - at)
            if len(self._start) == _SIZE.size + _START.size:
                self._note()

    def _note(self) -> None:
        (size,) = _SIZE.unpack_from(self._start)
        key, version, number = _START.unpack_from(self._start, _SIZE.size)
        if key in _ANSWERS:
            self.asked[number] = (key, version)
            if len(self.asked) > ASKED_MAX:
                del self.asked[next(iter(self.asked))]
        self._start.clear()
        self._left = max(size - _START.size, 0)


class Answers:
    """What a node sends back, with its addresses exchanged. Frames without any are not even gathered."""

    def __init__(self, asked: dict[int, tuple[int, int]], exchange: Exchange) -> None:
        self._asked = asked
        self._exchange = exchange
        self._data = bytearray()
        self._passing = 0

    def pass_on(self, data: bytes) -> list[bytes]:
        """What the client gets now."""
        passed: list[bytes] = []
        if self._passing and not self._data:
            passed.append(data[: self._passing])
            self._passing -= len(passed[0])
            data = data[len(passed[0]) :]
        self._data += data
        while (end := self._frame_end()) is not None:
            number = int.from_bytes(self._data[4:8], "big", signed=True)
            if number not in self._asked or not 8 <= end <= _FRAME_BYTES_MAX:
                passed.append(bytes(self._data[:end]))
                self._passing = end - len(passed[-1])
            elif len(self._data) >= end:
                passed.append(self._rewritten(bytes(self._data[:end]), *self._asked.pop(number)))
            else:
                break
            del self._data[:end]
        return passed

    def _frame_end(self) -> int | None:
        """Of the frame that begins here, once enough has come to say what it is."""
        if len(self._data) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._data)
        # One that is shorter than a correlation id is the answer to a bare message of a login.
        known = _SIZE.size + min(max(size, 0), 4)
        return None if len(self._data) < known else _SIZE.size + max(size, 0)

    def _rewritten(self, frame: bytes, key: int, version: int) -> bytes:
        view = memoryview(frame)[_SIZE.size :]
        try:
            number, at = read_response_header(view, key, version)
            answer = _ANSWERS[key].decode(view, version, at)
            return bytes(encode_response(exchanged(answer, self._exchange), version, number))
        except (MalformedRequest, ValueError):
            return frame  # Of a version that we do not know: better as it is than not at all.


def exchanged(answer: Message, exchange: Exchange) -> Message:
    """The same answer with every address exchanged. Nobody's address (of a coordinator that is not there) stays."""
    match answer:
        case MetadataResponse() | DescribeClusterResponse():
            for broker in answer.brokers:
                _exchange(broker, exchange)
        case FindCoordinatorResponse():
            _exchange(answer, exchange)
            for coordinator in answer.coordinators:
                _exchange(coordinator, exchange)
    return answer


class _Holder(Protocol):
    host: str
    port: int


def _exchange(holder: _Holder, exchange: Exchange) -> None:
    if holder.host and holder.port > 0:
        holder.host, holder.port = exchange((holder.host, holder.port))
