"""Who may begin a connection, and how fast."""

import random
from types import SimpleNamespace
from typing import cast

from headrace.doors.quic.endpoint import REST_ABOVE, RETRY_ABOVE, Endpoint
from headrace.doors.quic.headers import LongHeader
from headrace.doors.quic.retry import Original
from headrace.doors.quic.settings import QuicSettings
from headrace.quic.peers import Peer
from headrace.quic.sockets import Address, DatagramSocket

STRANGER = ("192.0.2.7", 4433)


class Port:
    """Counts how often it was told to rest, and keeps what was sent."""

    def __init__(self) -> None:
        self.rests = 0
        self.sent: list[bytes] = []

    def rest(self, seconds: float) -> None:
        self.rests += 1

    def send(self, datagrams: tuple[bytes, ...], address: Address) -> None:
        self.sent += datagrams


class Newcomer:
    """As much of a peer as the endpoint asks for while its handshake is open."""

    def __init__(self, header: LongHeader, address: Address) -> None:
        self.quic = SimpleNamespace(host_cid=b"ours" + header.destination_id[:4])
        self.host = address[0]

    def receive(self, datagrams: list[bytes], address: Address) -> None:
        pass


def new_peer(original: Original | None, header: LongHeader, address: Address) -> Peer:
    return cast(Peer, Newcomer(header, address))


def first_datagram(number: int) -> bytes:
    destination = number.to_bytes(8, "big")
    head = b"\xc3\x00\x00\x00\x01" + bytes([8]) + destination + bytes([4]) + b"them" + b"\x00" + b"\x44\x00"
    return head.ljust(1200, b"\x00")


def endpoint_with(port: Port) -> Endpoint:
    endpoint = Endpoint(QuicSettings(), new_peer=new_peer, chance=random.Random(7))
    endpoint.begin(cast(DatagramSocket, port))
    return endpoint


async def test_the_port_rests_after_each_newcomer_while_a_few_handshakes_are_open() -> None:
    port = Port()
    endpoint = endpoint_with(port)
    for number in range(REST_ABOVE):
        endpoint.received([first_datagram(number)], STRANGER)
    assert (endpoint.half_open, port.rests) == (REST_ABOVE, 0)
    for number in range(REST_ABOVE, RETRY_ABOVE):
        endpoint.received([first_datagram(number)], STRANGER)
    assert (endpoint.half_open, port.rests) == (RETRY_ABOVE, RETRY_ABOVE - REST_ABOVE)
    endpoint.close()


async def test_newcomers_prove_their_address_while_many_are_open() -> None:
    port = Port()
    endpoint = endpoint_with(port)
    for number in range(RETRY_ABOVE + 3):
        endpoint.received([first_datagram(number)], STRANGER)
    assert (endpoint.half_open, endpoint.retries_total, len(port.sent)) == (RETRY_ABOVE, 3, 3)
    endpoint.close()
