"""SASL as a client: PLAIN, SCRAM and OAUTHBEARER, message by message. Pure; the nonce is an argument."""

import base64
import hashlib
import hmac
from collections.abc import Generator
from typing import Final

from headrace.errors import Denied, Invalid

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", "OAUTHBEARER", *_HASHES)


def exchange(mechanism: str, user: str, password: str, *, nonce: str) -> Generator[bytes, bytes, None]:
    """Gives what to send, takes what was answered, and ends when the server has proved that it knows the password, too.

    The password of OAUTHBEARER is a token, which says who its bearer is.
    """
    if mechanism == "PLAIN":
        yield f"\0{user}\0{password}".encode()
        return
    if mechanism == "OAUTHBEARER":
        yield f"n,,\1auth=Bearer {password}\1\1".encode()
        return
    if mechanism not in _HASHES:
        raise Invalid(f"{mechanism}: expected one of {', '.join(MECHANISMS)}")
    yield from _scram(_HASHES[mechanism], user, password, nonce)


def _scram(name: str, user: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = (yield f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    if not fields.get("r", "").startswith(nonce):
        raise Denied("the server has answered somebody else")
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={fields['r']}"
    message = f"{bare},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    expected = b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", name), message, name))
    if not hmac.compare_digest(answer, expected):
        raise Denied("the server does not know the password; it is somebody else")
