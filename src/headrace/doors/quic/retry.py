"""Proof that a client is where it says it is, without remembering anything about it (RFC 9000, 8.1.2).

While many handshakes are open, a newcomer gets a token instead of an answer, and is listened to when it comes back with it. So whoever writes
others' addresses on datagrams costs us one small datagram each, and no handshake.
"""

import hmac
import ipaddress
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from headrace.quic.sockets import Address

TOKEN_SECONDS_MAX: Final = 15
_HEAD: Final = struct.Struct(">IBB")
_MAC_SIZE: Final = 16


class Original(msgspec.Struct, frozen=True):
    """What the first datagram of that client said, and what we answered."""

    destination_id: bytes
    source_id: bytes
    """Ours, in the answer."""


class RetryTokens:
    def __init__(self, secret: bytes, now_s: Callable[[], float]) -> None:
        self._secret = secret
        self._now_s = now_s

    def make(self, address: Address, original: Original) -> bytes:
        head = _HEAD.pack(int(self._now_s()) & 0xFFFFFFFF, len(original.destination_id), len(original.source_id))
        token = head + original.destination_id + original.source_id
        return token + self._mac(address, token)

    def read(self, address: Address, token: bytes) -> Original | None:
        """None for one that we have not given to this address, or not lately."""
        body, mac = token[:-_MAC_SIZE], token[-_MAC_SIZE:]
        if len(body) < _HEAD.size or not hmac.compare_digest(mac, self._mac(address, body)):
            return None
        made_s, destination_size, source_size = _HEAD.unpack_from(body)
        if (int(self._now_s()) - made_s) & 0xFFFFFFFF > TOKEN_SECONDS_MAX:
            return None
        ids = body[_HEAD.size :]
        return Original(ids[:destination_size], ids[destination_size : destination_size + source_size])

    def _mac(self, address: Address, body: bytes) -> bytes:
        place = ipaddress.ip_address(address[0].partition("%")[0]).packed + struct.pack(">H", address[1])
        return hmac.digest(self._secret, place + body, sha256)[:_MAC_SIZE]
