"""Tokens of the administrative API, for programs: made once, shown once, kept as a digest with the user they belong to.

A token is `hr_ID_SECRET`: the id finds the entry, the secret is 32 random bytes. So many cannot be guessed, and a plain digest of
them is as good as a slow one. A token is its user's for as long as there is that user.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.chance import Chance
from headrace.control import values_pb2 as pb

PREFIX: Final = "hr_"
TOKENS_PER_USER_MAX: Final = 100
NOTE_LENGTH_MAX: Final = 200
_TOKEN: Final = re.compile(r"hr_([0-9a-f]{16})_([0-9a-f]{64})")


class ApiToken(msgspec.Struct, frozen=True, gc=False):
    """All that is kept of one."""

    digest: bytes
    created_ms: int
    expires_ms: int = 0
    """0 is never."""
    note: str = ""

    def is_over(self, now_ms: int) -> bool:
        return bool(self.expires_ms) and now_ms >= self.expires_ms


class NewToken(msgspec.Struct, frozen=True):
    """Before anybody has been told."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def digest(self) -> bytes:
        return _digest(self.secret)

    def __repr__(self) -> str:
        return f"NewToken({self.id})"


def new_token(chance: Chance) -> NewToken:
    return NewToken(chance.randbytes(8).hex(), chance.randbytes(32).hex())


def read_token(text: str) -> NewToken | None:
    """The parts of a token; None for what cannot be one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else NewToken(found[1], found[2])


def fits(kept: ApiToken, given: NewToken) -> bool:
    return hmac.compare_digest(kept.digest, given.digest)


def decode_tokens(stored: pb.User) -> dict[str, ApiToken]:
    return {
        name: ApiToken(each.digest, each.created_ms, each.expires_ms, each.note)
        for name, each in stored.api_tokens.items()
    }


def encode_tokens(tokens: Mapping[str, ApiToken]) -> dict[str, pb.ApiToken]:
    return {
        name: pb.ApiToken(digest=each.digest, created_ms=each.created_ms, expires_ms=each.expires_ms, note=each.note)
        for name, each in tokens.items()
    }


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
