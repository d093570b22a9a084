"""Frames between brokers: there and back whole, byte by byte and cut short, and nothing else is believed."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.peer import frames
from headrace.wire.peer.frames import Answer, Call, Hello, Message, Ping, Pong, Refusal, Welcome

NUMBERS = st.integers(0, 2**63 - 1)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, NUMBERS, st.text(), st.text(), NUMBERS, st.text(), NUMBERS),
    st.builds(Welcome, NUMBERS),
    st.builds(Call, NUMBERS, st.text(), st.binary()),
    st.builds(Answer, NUMBERS, st.binary()),
    st.builds(Refusal, NUMBERS, st.text(), st.text(), st.text()),
    st.just(Ping()),
    st.just(Pong()),
)


@given(st.lists(MESSAGES, max_size=5), st.booleans())
def test_messages_come_back_as_they_were_whole_and_byte_by_byte(messages: list[Message], is_whole: bool) -> None:
    stream = b"".join(map(frames.encode, messages))
    pieces = [stream] if is_whole else [stream[index : index + 1] for index in range(len(stream))]
    reader, found = frames.frame_reader(), []
    for piece in pieces:
        reader.receive(piece)
        while (frame := reader.next_frame()) is not None:
            found.append(frames.decode(frame.header[0], frame.payload))
    assert found == messages


@given(MESSAGES)
def test_a_message_that_is_cut_short_is_not_believed(message: Message) -> None:
    stream = frames.encode(message)
    for end in range(6, len(stream)):
        reader = frames.frame_reader()
        reader.receive(stream[:end])
        assert reader.next_frame() is None
        with pytest.raises(MalformedRequest):
            frames.decode(stream[1], stream[6:end])


def test_the_header_is_that_of_mlog() -> None:
    assert frames.encode(Ping()) == bytes.fromhex("0015 00000001 90")


@pytest.mark.parametrize("frame_type", [0, 1, 15, 23, 65535])
def test_types_that_nobody_sends_are_refused(frame_type: int) -> None:
    with pytest.raises(MalformedRequest):
        frames.decode(frame_type, b"\x90")


def test_a_frame_beyond_the_limit_is_neither_sent_nor_waited_for() -> None:
    with pytest.raises(TooLarge):
        frames.encode(Call(1, "x", bytes(frames.FRAME_BYTES_MAX)))
    reader = frames.frame_reader()
    reader.receive(struct.pack(">HI", 18, frames.FRAME_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        reader.next_frame()


def test_what_a_newer_version_adds_is_left_out() -> None:
    newer = b"\x95\x01\xa1x\xc4\x01y\x07\x08"  # A call with two more fields.
    assert frames.decode(frames.FrameType.CALL, newer) == Call(1, "x", b"y")
