"""What may be answered before a handshake is complete (0-RTT): questions, no changes.

Data that comes early may be a replay: somebody on the way sends once more what he has seen. Tickets count once (`tickets.py`), so it should not
happen; and if it does, nothing happens that matters. Metadata waits if it might create topics. Fetch passes only where nobody logs in:
elsewhere it would be refused anyway.
"""

import struct
from typing import Final

from headrace.errors import MalformedRequest
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import read_request_header
from headrace.wire.kafka.messages.metadata_request import MetadataRequest

_START: Final = struct.Struct(">ihh")
_FRAME_BYTES_MAX: Final = 64 * 1024
"""Of one early frame; a longer one waits."""


class EarlyFrames:
    """The frames of one stream that may pass early. Once one may not, everything waits behind it."""

    def __init__(self, *, has_login: bool) -> None:
        self._has_login = has_login
        self._data = bytearray()
        self._is_shut = False

    def receive(self, data: bytes) -> bytes:
        """What passes now, in whole frames."""
        self._data += data
        passed = 0
        while not self._is_shut and len(self._data) - passed >= _START.size:
            size, key, version = _START.unpack_from(self._data, passed)
            end = passed + 4 + size
            if not 8 <= size <= _FRAME_BYTES_MAX:
                self._is_shut = True
            elif end > len(self._data):
                break
            elif self._may_pass(bytes(self._data[passed:end]), key, version):
                passed = end
            else:
                self._is_shut = True
        passing = bytes(self._data[:passed])
        del self._data[:passed]
        return passing

    def rest(self) -> bytes:
        """What waited, once the handshake is complete."""
        rest, self._data = bytes(self._data), bytearray()
        return rest

    def _may_pass(self, frame: bytes, key: int, version: int) -> bool:
        if key == ApiKey.API_VERSIONS:
            return True
        if key == ApiKey.FETCH:
            return not self._has_login
        return key == ApiKey.METADATA and not _may_create(frame, version)


def _may_create(frame: bytes, version: int) -> bool:
    """Whether this Metadata request may create a topic. One that cannot be read is left for later, too."""
    try:
        view = memoryview(frame)
        request = MetadataRequest.decode(view, version, read_request_header(view, 4).body_at)
    except MalformedRequest:
        return True
    return bool(request.topics) and request.allow_auto_topic_creation
