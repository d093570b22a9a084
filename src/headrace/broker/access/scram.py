"""SCRAM (RFC 5802, RFC 7677), the server's side: who somebody says they are, a challenge, and their proof.

The server keeps verifiers, never passwords: from a verifier nobody can log in. Pure: the nonce is an argument.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

import msgspec

from headrace.errors import Denied, MalformedRequest

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = 8_192
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MESSAGE_BYTES_MAX: Final = 8_192
_FIRST: Final = re.compile(
    r"(?P<gs2>(?P<flag>[ny]),(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)"
)
_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,(?!p=)[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class Verifier(msgspec.Struct, frozen=True, gc=False):
    """All that is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The dear step, milliseconds of CPU on purpose: not on the event loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def verifier_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return Verifier(salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))


class ClientFirst(msgspec.Struct, frozen=True, gc=False):
    """What a client opens with."""

    user: str
    nonce: str
    bare: str
    gs2_header: str


def read_first(message: bytes) -> ClientFirst:
    """Raises `MalformedRequest`; `Denied` for a client that wants to be somebody else than it proves to be."""
    found = _FIRST.fullmatch(_text(message))
    if found is None:
        raise MalformedRequest("not a SCRAM client-first message")
    user = _unescape(found["user"])
    if found["authzid"] and _unescape(found["authzid"]) != user:
        raise Denied("an authorization id that differs from the user is not supported")
    return ClientFirst(user, found["nonce"], found["bare"], found["gs2"])


class Challenge:
    """One exchange after its first message: `challenge` is sent, `verify` takes the answer."""

    def __init__(self, mechanism: str, first: ClientFirst, verifier: Verifier, *, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._first = first
        self._verifier = verifier
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(verifier.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={verifier.iterations}"

    def verify(self, message: bytes) -> bytes:
        """The server's own proof; raises `Denied` for a wrong one, `MalformedRequest` for none."""
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise MalformedRequest("not a SCRAM client-final message")
        # All is compared, and in constant time: which of it was wrong is nobody's business.
        binding = base64.b64encode(self._first.gs2_header.encode()).decode()
        is_bound = hmac.compare_digest(found["binding"], binding)
        is_fresh = hmac.compare_digest(found["nonce"], self._nonce)
        auth_message = f"{self._first.bare},{self.challenge},{found['bare']}".encode()
        is_proven = self._is_proof(found["proof"], auth_message)
        if not (is_bound and is_fresh and is_proven):
            raise Denied("wrong user or password")
        signature = hmac.digest(self._verifier.server_key, auth_message, self._hash)
        return b"v=" + base64.b64encode(signature)

    def _is_proof(self, text: str, auth_message: bytes) -> bool:
        try:
            proof = base64.b64decode(text, validate=True)
        except binascii.Error:
            return False
        signature = hmac.digest(self._verifier.stored_key, auth_message, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._verifier.stored_key)


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise MalformedRequest("a SCRAM message is too large")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest("a SCRAM message is not UTF-8") from error


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise MalformedRequest("a name in a SCRAM message is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
