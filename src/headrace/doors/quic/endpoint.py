"""The UDP port: whose a datagram is, and who may begin a connection.

Nothing here is done for a stranger that costs more than it cost him:

- A datagram that belongs to nobody and begins nothing is dropped; where most are like that, the port rests between reads.
- Handshakes are rationed, in all and per second, and those that are not complete in time are forgotten. While a few are open, the port rests
  after each newcomer, whose handshake has just kept the loop busy for a millisecond; while more are, newcomers prove their address first (`retry.py`).
- qh3 sends no more than three times what an unproven address has sent.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from qh3.quic.packet import QuicProtocolVersion, encode_quic_retry, encode_quic_version_negotiation

from headrace.chance import Chance
from headrace.doors.quic.headers import CONNECTION_ID_SIZE, LongHeader, is_long, read_long, short_destination
from headrace.doors.quic.retry import Original, RetryTokens
from headrace.doors.quic.settings import QuicSettings
from headrace.quic.peers import Peer
from headrace.quic.sockets import Address, DatagramSocket

HANDSHAKE_SECONDS_MAX: Final = 10.0
REST_ABOVE: Final = 4
"""Handshakes open at once before newcomers come one at a time. A client that opens a few connections at once notices nothing."""
RETRY_ABOVE: Final = 16
"""Handshakes open at once before newcomers have to prove their address."""
HALF_OPEN_MAX: Final = 128
"""Handshakes open at once. Each costs some hundred kilobytes until it is done or forgotten."""
_INITIAL_SIZE_MIN: Final = 1200
"""A client's first datagram is at least so large, or our answer would be larger than it (RFC 9000, 14.1)."""
_JUNK_MAX: Final = 24
"""Datagrams that were no use, in one turn of the loop, before the port rests."""
_REST_S: Final = 0.003

NewPeer = Callable[[Original | None, LongHeader, Address], Peer]


class Endpoint:
    def __init__(self, settings: QuicSettings, *, new_peer: NewPeer, chance: Chance) -> None:
        self._settings = settings
        self._new_peer = new_peer
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._tokens = RetryTokens(chance.randbytes(32), self._loop.time)
        self._udp: DatagramSocket | None = None
        self._owners: dict[bytes, Peer] = {}
        """Of connection ids."""
        self.peers: dict[Peer, set[bytes]] = {}
        self._hosts: Counter[str] = Counter()
        self._half_open: dict[Peer, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._allowance = float(settings.handshakes_per_second_max)
        self._allowed_at = self._loop.time()
        self._junk = 0
        self._junk_at = 0.0
        self.accepted_total = 0
        self.dropped_total = 0
        """Datagrams of nobody."""
        self.turned_away_total = 0
        """First datagrams of connections that there was no room for."""
        self.retries_total = 0
        self.early_total = 0
        """Connections on which something was answered before the handshake was complete."""
        self.migrations_total = 0
        """Of connections that are over."""

    def begin(self, udp: DatagramSocket) -> None:
        self._udp = udp

    @property
    def half_open(self) -> int:
        return len(self._half_open)

    @property
    def unsent_total(self) -> int:
        """Datagrams that the socket did not take."""
        return 0 if self._udp is None else self._udp.lost_total

    def of_host(self, host: str, count: Callable[[Peer], int]) -> int:
        """The sum over all connections of an address."""
        return sum(count(peer) for peer in self.peers if peer.host == host)

    def received(self, datagrams: list[bytes], address: Address) -> None:
        """Those of one connection that came together are handed over together."""
        owner: Peer | None = None
        run: list[bytes] = []
        for datagram in datagrams:
            found = self._owner_of(datagram, address)
            if found is not owner and owner is not None:
                owner.receive(run, address)
                run = []
            owner = found
            if found is None:
                self._drop()
            else:
                run.append(datagram)
        if owner is not None:
            owner.receive(run, address)

    def _owner_of(self, datagram: bytes, address: Address) -> Peer | None:
        """None for a datagram that is no use any more, answered or not."""
        if len(datagram) <= CONNECTION_ID_SIZE:
            return None
        if not is_long(datagram):
            return self._owners.get(short_destination(datagram))
        header = read_long(datagram)
        if header is None:
            return None
        found = self._owners.get(header.destination_id)
        if found is not None or len(datagram) < _INITIAL_SIZE_MIN:
            return found
        if header.version != QuicProtocolVersion.VERSION_1:
            self._name_version(header, address)
            return None
        return self._newcomer(header, address) if header.is_initial else None

    def _drop(self) -> None:
        self.dropped_total += 1
        now = self._loop.time()
        if now - self._junk_at > _REST_S:
            self._junk_at, self._junk = now, 0
        self._junk += 1
        if self._junk > _JUNK_MAX and self._udp is not None:
            self._junk = 0
            self._udp.rest(_REST_S)

    def _name_version(self, header: LongHeader, address: Address) -> None:
        """Say which version we speak; unless that is what it is about (RFC 9000, 6.1)."""
        if header.version != QuicProtocolVersion.NEGOTIATION:
            self._answer(
                encode_quic_version_negotiation(
                    source_cid=header.destination_id,
                    destination_cid=header.source_id,
                    supported_versions=[QuicProtocolVersion.VERSION_1],
                ),
                address,
            )

    def _newcomer(self, header: LongHeader, address: Address) -> Peer | None:
        settings = self._settings
        if (
            self._is_closed
            or len(self.peers) >= settings.connections_max
            or self._hosts[address[0]] >= settings.connections_per_host_max
            or len(self._half_open) >= HALF_OPEN_MAX
        ):
            self.turned_away_total += 1
            return None
        original = self._tokens.read(address, header.token) if header.token else None
        if original is None and len(self._half_open) >= RETRY_ABOVE:
            self._ask_for_proof(header, address)
            return None
        if not self._is_allowed():
            self.turned_away_total += 1
            return None
        return self._admit(original, header, address)

    def _is_allowed(self) -> bool:
        rate, now = self._settings.handshakes_per_second_max, self._loop.time()
        self._allowance = min(self._allowance + (now - self._allowed_at) * rate, rate)
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _ask_for_proof(self, header: LongHeader, address: Address) -> None:
        original = Original(header.destination_id, self._chance.randbytes(CONNECTION_ID_SIZE))
        self.retries_total += 1
        self._answer(
            encode_quic_retry(
                version=header.version,
                source_cid=original.source_id,
                destination_cid=header.source_id,
                original_destination_cid=header.destination_id,
                retry_token=self._tokens.make(address, original),
            ),
            address,
        )

    def _answer(self, datagram: bytes, address: Address) -> None:
        if self._udp is not None:
            self._udp.send((datagram,), address)

    def _admit(self, original: Original | None, header: LongHeader, address: Address) -> Peer:
        peer = self._new_peer(original, header, address)
        self.accepted_total += 1
        self.peers[peer] = set()
        self._hosts[address[0]] += 1
        self._half_open[peer] = self._loop.call_later(HANDSHAKE_SECONDS_MAX, self._give_up, peer)
        self.issued(peer, header.destination_id)
        self.issued(peer, peer.quic.host_cid)
        if len(self._half_open) > REST_ABOVE and self._udp is not None:
            self._udp.rest(_REST_S)
        return peer

    def _give_up(self, peer: Peer) -> None:
        peer.close()

    # -- told by connections --------------------------------------------------------------------------------------

    def connected(self, peer: Peer) -> None:
        timer = self._half_open.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def issued(self, peer: Peer, connection_id: bytes) -> None:
        if peer in self.peers:
            self.peers[peer].add(connection_id)
            self._owners[connection_id] = peer

    def retired(self, peer: Peer, connection_id: bytes) -> None:
        if self._owners.get(connection_id) is peer:
            del self._owners[connection_id]
            self.peers[peer].discard(connection_id)

    def ended(self, peer: Peer) -> None:
        self.connected(peer)
        for connection_id in self.peers.pop(peer, ()):
            self._owners.pop(connection_id, None)
        self.migrations_total += peer.migrations_total
        self._hosts[peer.host] -= 1
        if self._hosts[peer.host] <= 0:
            del self._hosts[peer.host]

    def close(self) -> None:
        """Nobody new comes in."""
        self._is_closed = True
