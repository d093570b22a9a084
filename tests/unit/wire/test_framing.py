"""Frames come out whole and in order however the bytes are cut, and a bad length is seen before its payload."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TooLarge
from headrace.wire.framing import EmptyFrame, FrameReader, IncompleteFrame

HEADER = struct.Struct(">I")


def reader(limit: int = 100) -> FrameReader:
    return FrameReader(HEADER, payload_bytes_max=limit, payload_bytes_min=1)


def drain(frames: FrameReader) -> list[bytes]:
    found = []
    while (frame := frames.next_frame()) is not None:
        found.append(frame.payload)
    return found


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=100), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=30),
)
def test_frames_survive_any_segmentation(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(HEADER.pack(len(payload)) + payload for payload in payloads)
    frames, found, position, turn = reader(), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        frames.receive(stream[position : position + size])
        position += size
        turn += 1
        if turn % 2:
            found += drain(frames)
    found += drain(frames)
    assert found == payloads
    frames.finish()


def test_a_large_frame_byte_by_byte() -> None:
    payload = bytes(range(250)) * 4
    frames = reader(1000)
    for byte in HEADER.pack(len(payload)) + payload[:-1]:
        frames.receive(bytes([byte]))
        assert frames.next_frame() is None
    frames.receive(payload[-1:])
    assert drain(frames) == [payload]


def test_a_frame_left_unread_waits_for_its_reader() -> None:
    frames = reader()
    frames.receive(b"\0\0\0\1a\0\0\0\1b")
    assert frames.next_frame() is not None
    frames.receive(b"\0\0\0\1c")
    assert frames.pending_bytes == 10
    assert drain(frames) == [b"b", b"c"]


def test_a_length_over_the_limit_is_refused_before_its_payload_arrives() -> None:
    frames = reader()
    frames.receive(HEADER.pack(101))
    with pytest.raises(TooLarge):
        frames.next_frame()


def test_an_empty_frame_is_refused() -> None:
    frames = reader()
    frames.receive(HEADER.pack(0))
    with pytest.raises(EmptyFrame):
        frames.next_frame()


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_end_inside_a_frame_is_an_error(cut: int) -> None:
    frames = reader()
    frames.receive((HEADER.pack(5) + b"hello")[:cut])
    assert frames.next_frame() is None
    with pytest.raises(IncompleteFrame):
        frames.finish()
