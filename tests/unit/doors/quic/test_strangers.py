"""What is read of a datagram before its sender is anybody, and what a stranger is given."""

import os
import random

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.packet import pull_quic_header
from hypothesis import given
from hypothesis import strategies as st

from headrace.doors.quic.headers import is_long, read_long, short_destination
from headrace.doors.quic.retry import TOKEN_SECONDS_MAX, Original, RetryTokens
from headrace.doors.quic.tickets import TICKETS_MAX, Tickets
from headrace.quic.peers import Ticket

HERE = ("192.0.2.7", 4433)


def initial(destination: bytes, source: bytes, token: bytes, version: int = 1) -> bytes:
    head = b"\xc3" + version.to_bytes(4, "big") + bytes([len(destination)]) + destination
    return head + bytes([len(source)]) + source + bytes([0x40, len(token)]) + token + b"\x44\x00" + b"\x00" * 1024


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=200))
def test_headers_are_read_as_aioquic_reads_them(destination: bytes, source: bytes, token: bytes) -> None:
    datagram = initial(destination, source, token)
    theirs = pull_quic_header(Buffer(data=datagram), host_cid_length=8)
    ours = read_long(datagram)
    assert ours is not None
    assert (ours.destination_id, ours.source_id) == (theirs.destination_cid, theirs.source_cid)
    assert (ours.token, ours.version, ours.is_initial) == (theirs.token, theirs.version, True)


@given(st.binary(min_size=9, max_size=100))
def test_any_bytes_are_a_header_or_none(datagram: bytes) -> None:
    if is_long(datagram):
        read_long(datagram)
    else:
        assert len(short_destination(datagram)) == 8


def test_a_header_cut_short_is_none() -> None:
    whole = initial(b"destinat", b"source", b"token")
    end = whole.index(b"token") + 5
    for size in range(9, end):
        assert read_long(whole[:size]) is None
    assert read_long(whole[:end]) is not None


def test_a_token_counts_where_and_when_it_was_given() -> None:
    now = 1000.0
    tokens = RetryTokens(os.urandom(32), lambda: now)
    original = Original(b"first id", b"ours")
    token = tokens.make(HERE, original)
    assert tokens.read(HERE, token) == original
    assert tokens.read((HERE[0], 4434), token) is None
    assert tokens.read(("192.0.2.8", HERE[1]), token) is None
    assert RetryTokens(os.urandom(32), lambda: now).read(HERE, token) is None, "of another life"
    now += TOKEN_SECONDS_MAX
    assert tokens.read(HERE, token) == original
    now += 1
    assert tokens.read(HERE, token) is None


def test_a_token_that_was_touched_counts_nowhere() -> None:
    tokens = RetryTokens(os.urandom(32), lambda: 0.0)
    token = tokens.make(HERE, Original(b"first id", b"ours"))
    chance = random.Random(7)
    for at in range(len(token)):
        touched = bytearray(token)
        touched[at] ^= 1 << chance.randrange(8)
        assert tokens.read(HERE, bytes(touched)) is None
    for size in range(len(token)):
        assert tokens.read(HERE, token[:size]) is None


@pytest.mark.requirement("R3.63")
def test_a_ticket_counts_once_and_the_oldest_go() -> None:
    tickets = Tickets()
    for number in range(TICKETS_MAX + 2):
        tickets.keep(Ticket(0, None, None, None, b"", "", str(number).encode()))  # type: ignore[arg-type]  # a name is enough
    assert len(tickets) == TICKETS_MAX
    assert tickets.take(b"0") is None
    assert tickets.take(b"1") is None
    assert tickets.take(b"2") is not None
    assert tickets.take(b"2") is None
