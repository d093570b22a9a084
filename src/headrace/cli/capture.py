"""What was recorded on the network: raw bytes of one direction, a hex dump, or a pcap file of whole connections.

pcap as tcpdump writes it: TCP segments are put in order by their numbers, repeated ones are dropped. It knows no
protocol above TCP.
"""

import binascii
import re
import struct
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import Invalid

_PCAP_MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\x4d\x3c\xb2\xa1": "<",
    b"\xa1\xb2\x3c\x4d": ">",
}
_LINK_HEADERS: Final = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 276: 20}
"""Link type to the size of what stands before IP: loopback, Ethernet, raw, raw, Linux cooked 1 and 2."""
_TCP: Final = 6
_SEQUENCE_MODULUS: Final = 2**32
_POSITION: Final = re.compile(rb"[0-9a-fA-F]{4,16}(?:: ?|  +)")
_GAP: Final = re.compile(rb"  +")
_HALF_LINE: Final = re.compile(rb"[0-9a-fA-F]{2}(?: [0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes one side sent."""

    source: str
    target: str
    data: bytes
    is_from_client: bool
    """Meaningful in captures of both sides; raw bytes could be either's."""


def read_capture(data: bytes, *, port: int, is_hex: bool) -> list[Stream]:
    """The streams in `data`; of a pcap, those from and to `port`."""
    if is_hex:
        try:
            data = binascii.unhexlify(_hex_digits(data))
        except binascii.Error as error:
            raise Invalid(f"not a hex dump: {error}") from error
    if data[:4] in _PCAP_MAGICS:
        return _read_pcap(data, port)
    return [Stream("", "", data, True)]


def _hex_digits(dump: bytes) -> bytes:
    """Bare digits, or those of `xxd` and `hexdump -C`: with a position before them and text behind them."""
    if not _POSITION.match(dump.lstrip()):
        return b"".join(dump.split())
    return b"".join(map(_digits_of_line, dump.splitlines()))


def _digits_of_line(line: bytes) -> bytes:
    left, *right = _GAP.split(_POSITION.sub(b"", line.strip() + b"  ", count=1))
    # `hexdump -C` parts sixteen bytes in the middle.
    halves = [left, right[0]] if len(left.split()) == 8 and _HALF_LINE.fullmatch(right[0]) else [left]
    return b"".join(b"".join(half.split()) for half in halves)


Ends = tuple[str, int, str, int]


@dataclass(slots=True)
class _Direction:
    """Segments of one side of one connection, as they were seen."""

    first: int | None = None
    segments: dict[int, bytes] = field(default_factory=dict)

    def add(self, sequence: int, payload: bytes, *, is_opening: bool) -> None:
        if is_opening:
            self.first = (sequence + 1) % _SEQUENCE_MODULUS
        elif payload:
            if self.first is None:
                self.first = sequence
            place = (sequence - self.first) % _SEQUENCE_MODULUS
            if place < _SEQUENCE_MODULUS // 2 and len(payload) > len(self.segments.get(place, b"")):
                self.segments[place] = payload

    def join(self) -> bytes:
        joined = bytearray()
        for place in sorted(self.segments):
            if place > len(joined):
                raise Invalid(f"the capture misses {place - len(joined)} bytes after byte {len(joined)}")
            joined += self.segments[place][len(joined) - place :]
        return bytes(joined)


def _read_pcap(data: bytes, port: int) -> list[Stream]:
    order = _PCAP_MAGICS[data[:4]]
    (link,) = struct.unpack_from(order + "I", data, 20)
    if link not in _LINK_HEADERS:
        raise Invalid(f"link type {link} of the pcap is not understood")
    directions: dict[Ends, _Direction] = {}
    position, header = 24, struct.Struct(order + "IIII")
    while position + header.size <= len(data):
        size = header.unpack_from(data, position)[2]
        packet = data[position + header.size : position + header.size + size]
        _take_packet(packet[_LINK_HEADERS[link] :], port, directions)
        position += header.size + size
    return [
        Stream(f"{ends[0]}:{ends[1]}", f"{ends[2]}:{ends[3]}", direction.join(), ends[3] == port)
        for ends, direction in directions.items()
        if direction.segments
    ]


def _take_packet(packet: bytes, port: int, directions: dict[Ends, _Direction]) -> None:
    if len(packet) < 40 or packet[0] >> 4 not in (4, 6):
        return
    if packet[0] >> 4 == 4:
        size, length, protocol = (packet[0] & 15) * 4, struct.unpack_from(">H", packet, 2)[0], packet[9]
        source, target = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
    else:
        size, length, protocol = 40, 40 + struct.unpack_from(">H", packet, 4)[0], packet[6]
        source, target = (f"[{packet[at : at + 16].hex(':', 2)}]" for at in (8, 24))
    if protocol != _TCP or len(packet) < size + 20:
        return
    segment = packet[size : length or None]
    source_port, target_port, sequence = struct.unpack_from(">HHI", segment)
    if port not in (source_port, target_port):
        return
    ends = (source, source_port, target, target_port)
    payload = segment[(segment[12] >> 4) * 4 :]
    directions.setdefault(ends, _Direction()).add(sequence, payload, is_opening=bool(segment[13] & 2))
