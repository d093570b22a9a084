"""Captures come back as the bytes each side sent, whatever order the segments were seen in."""

import struct

import pytest

from headrace.cli.capture import read_capture
from headrace.errors import Invalid

CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 9096)
SYN, ACK = 2, 16


def segment(source: tuple[str, int], target: tuple[str, int], sequence: int, payload: bytes, flags: int = ACK) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence % 2**32, 0, 5 << 4, flags, 0, 0, 0) + payload
    addresses = b"".join(bytes(map(int, host.split("."))) for host in (source[0], target[0]))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + addresses
    ethernet = bytes(12) + b"\x08\x00"
    # Ethernet pads short packets; what pads must not be taken for payload.
    return (ethernet + ip + tcp).ljust(60, b"\0")


def pcap(*packets: bytes, order: str = "<", link: int = 1) -> bytes:
    header = struct.pack(order + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, link)
    return header + b"".join(struct.pack(order + "IIII", 0, 0, len(p), len(p)) + p for p in packets)


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_sides_of_a_connection(order: str) -> None:
    start = 2**32 - 3
    data = pcap(
        segment(CLIENT, SERVER, start - 1, b"", SYN),
        segment(SERVER, CLIENT, 100, b"", SYN | ACK),
        segment(CLIENT, SERVER, start + 5, b"world"),
        segment(CLIENT, SERVER, start, b"hello"),
        segment(CLIENT, SERVER, start, b"hello"),
        segment(CLIENT, SERVER, start + 3, b"lowo"),
        segment(SERVER, CLIENT, 101, b"answer"),
        segment(("10.0.0.3", 5), ("10.0.0.2", 80), 1, b"another port"),
        order=order,
    )
    streams = read_capture(data, port=9096, is_hex=False)
    assert [(stream.source, stream.data, stream.is_from_client) for stream in streams] == [
        ("10.0.0.1:40000", b"helloworld", True),
        ("10.0.0.2:9096", b"answer", False),
    ]


def test_a_hole_in_the_capture_is_said() -> None:
    data = pcap(segment(CLIENT, SERVER, 1, b"hello"), segment(CLIENT, SERVER, 10, b"world"))
    with pytest.raises(Invalid, match="misses 4 bytes after byte 5"):
        read_capture(data, port=9096, is_hex=False)


def test_raw_bytes_and_hex_dumps() -> None:
    assert read_capture(b"raw", port=1, is_hex=False)[0].data == b"raw"
    assert read_capture(b"72 61\n77\n", port=1, is_hex=True)[0].data == b"raw"
    with pytest.raises(Invalid):
        read_capture(b"xyz", port=1, is_hex=True)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 24, 40])
@pytest.mark.parametrize("form", ["xxd", "hexdump -C", "docs"])
def test_dumps_with_positions_and_text(form: str, size: int) -> None:
    data = bytes((index * 7 + 32) % 95 + 32 for index in range(size))
    lines = []
    for at in range(0, size, 16):
        chunk = data[at : at + 16]
        text = chunk.decode()
        match form:
            case "xxd":
                lines.append(f"{at:08x}: {chunk.hex(' ', -2):<39}  {text}")
            case "hexdump -C":
                lines.append(f"{at:08x}  {chunk[:8].hex(' '):<23}  {chunk[8:].hex(' '):<23}  |{text}|")
            case _:
                lines.append(f"{at:04x}  {chunk.hex(' '):<47}  {text}")
    if form == "hexdump -C":
        lines.append(f"{size:08x}")
    assert read_capture("\n".join(lines).encode(), port=1, is_hex=True)[0].data == data


def test_an_unknown_link_type_is_said() -> None:
    with pytest.raises(Invalid, match="link type 105"):
        read_capture(pcap(link=105), port=1, is_hex=False)
