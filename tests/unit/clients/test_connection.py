"""A client's connection hands frames to whoever asked first, and fails everybody when it breaks."""

import ssl

import pytest
from tests.support.transports import FakeTransport

from headrace.clients.connection import (
    BACKLOG_FRAMES_MAX,
    CannotConnect,
    ConnectionLost,
    FramedConnection,
    open_connection,
    split_address,
    words_of,
)
from headrace.errors import Invalid
from headrace.wire.rustlog.codec import encode_frame, frame_reader


def connected() -> tuple[FramedConnection, FakeTransport]:
    connection, transport = FramedConnection(frame_reader()), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


async def test_answers_go_to_requests_in_order() -> None:
    connection, transport = connected()
    replies = [connection.start(b"one"), connection.start(b"two")]
    connection.data_received(encode_frame(b"first") + encode_frame(b"second"))
    assert [reply.result().payload for reply in replies] == [b"first", b"second"]
    assert transport.pieces == [b"one", b"two"]


async def test_an_abandoned_request_takes_its_answer_along() -> None:
    connection, _ = connected()
    abandoned, waiting = connection.start(b"one"), connection.start(b"two")
    abandoned.cancel()
    connection.data_received(encode_frame(b"first") + encode_frame(b"second"))
    assert waiting.result().payload == b"second"


async def test_a_lost_connection_fails_all_who_wait_and_all_who_come() -> None:
    connection, _ = connected()
    waiting = connection.start(b"one")
    connection.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(ConnectionLost):
        connection.write(b"two")


async def test_a_bad_frame_ends_the_connection() -> None:
    connection, transport = connected()
    waiting = connection.start(b"one")
    connection.data_received(b"\xff\xff\xff\xff")
    with pytest.raises(ConnectionLost):
        await waiting
    assert transport.is_closed


async def test_frames_nobody_has_asked_for_stop_the_reading() -> None:
    connection, transport = connected()
    connection.data_received(encode_frame(b"x") * BACKLOG_FRAMES_MAX)
    assert transport.is_paused
    for _ in range(BACKLOG_FRAMES_MAX):
        assert (await connection.receive()).payload == b"x"
    assert transport.is_paused is False


def test_addresses() -> None:
    assert split_address("localhost:9096") == ("localhost", 9096)
    assert split_address("[::1]:9096") == ("::1", 9096)
    for bad in ("localhost", "localhost:", ":x", ":9096", "localhost:65536", "localhost:-1"):
        with pytest.raises(Invalid, match="host:port"):
            split_address(bad)


async def test_who_is_not_there_is_named() -> None:
    with pytest.raises(CannotConnect, match=r"^no node at 127\.0\.0\.1:1: Connection refused$"):
        await open_connection("127.0.0.1:1", frame_reader())


def test_errors_of_tls_are_not_told_by_their_number() -> None:
    """Which is 1, and the system's word for that is another."""
    strange = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    strange.reason = "WRONG_VERSION_NUMBER"
    assert words_of(strange) == "no TLS there: wrong version number"
    unknown = ssl.SSLCertVerificationError(1, "certificate verify failed")
    unknown.verify_message = "self-signed certificate"
    assert words_of(unknown) == "its certificate is not believed: self-signed certificate"
    assert words_of(ConnectionRefusedError(111, "Connect call failed")) == "Connection refused"
