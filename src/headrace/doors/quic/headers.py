"""The part of a QUIC packet's header that says whose it is (RFC 8999): read before anything is believed."""

import msgspec

CONNECTION_ID_SIZE = 8
"""Of the ids that we give out."""
_ID_SIZE_MAX = 20
_VERSION_AT = 1
_TYPE_MASK = 0x30


class LongHeader(msgspec.Struct, frozen=True, gc=False):
    version: int
    destination_id: bytes
    source_id: bytes
    is_initial: bool
    token: bytes = b""


def is_long(datagram: bytes) -> bool:
    return bool(datagram[0] & 0x80)


def short_destination(datagram: bytes) -> bytes:
    return datagram[1 : 1 + CONNECTION_ID_SIZE]


def read_long(datagram: bytes) -> LongHeader | None:
    """None where the bytes are no header."""
    try:
        version = int.from_bytes(datagram[_VERSION_AT:5], "big")
        at = 5
        destination_id, at = _sized(datagram, at)
        source_id, at = _sized(datagram, at)
        is_initial = version == 1 and not datagram[0] & _TYPE_MASK
        token = b""
        if is_initial:
            size, at = _variable(datagram, at)
            token = datagram[at : at + size]
            if len(token) != size:
                return None
    except IndexError:
        return None
    if len(destination_id) > _ID_SIZE_MAX or len(source_id) > _ID_SIZE_MAX:
        return None
    return LongHeader(version, destination_id, source_id, is_initial, token)


def _sized(datagram: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + datagram[at]
    if end > len(datagram):
        raise IndexError
    return datagram[at + 1 : end], end


def _variable(datagram: bytes, at: int) -> tuple[int, int]:
    """A number whose first two bits say how long it is (RFC 9000, 16)."""
    size: int = 1 << (datagram[at] >> 6)
    if at + size > len(datagram):
        raise IndexError
    value = int.from_bytes(datagram[at : at + size], "big") & ((1 << (8 * size - 2)) - 1)
    return value, at + size
