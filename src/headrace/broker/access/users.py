"""Users and what is kept of their passwords; a user is what there is a verifier of."""

import asyncio
import hmac
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from headrace.broker.access.api_tokens import ApiToken, NewToken, decode_tokens, encode_tokens, fits
from headrace.broker.access.scram import (
    HASHES,
    ITERATIONS_DEFAULT,
    Verifier,
    salted_password,
    verifier_of,
)
from headrace.broker.access.stored import decode_whole
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.errors import Corrupted, Denied, Invalid, InvalidName, NewerFormat

NAME_LENGTH_MAX: Final = 255
PASSWORD_LENGTH_MAX: Final = 1_024
USERS_MAX: Final = 100_000
_HASHING_THREADS: Final = 2
"""Hashing gives up the interpreter, and waits for a core like everybody else: more threads would only be more of them."""
_SALT_BYTES: Final = 24

log = structlog.get_logger(__name__)


def check_user_name(name: str) -> None:
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidName("a user's name has 1 to 255 printable characters")


class Users:
    """By name, each with a verifier for each mechanism. Changed by what the metastore says and by nothing else."""

    def __init__(self, chance: Chance = SYSTEM_CHANCE) -> None:
        self._chance = chance
        self._verifiers: dict[str, Mapping[str, Verifier]] = {}
        self._tokens: dict[str, Mapping[str, ApiToken]] = {}
        self._owners: dict[str, str] = {}
        """Whose the token of an id is."""
        self.not_understood: set[str] = set()
        """Users that a newer version has written: they cannot log in here."""
        self._decoy = self._chance.randbytes(32)
        """Until the cluster's own is known: what unknown users are told must stay the same, on every broker."""
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, "hashing")

    def __len__(self) -> int:
        return len(self._verifiers)

    def names(self) -> list[str]:
        return sorted(self._verifiers)

    def verifiers(self, name: str) -> Mapping[str, Verifier]:
        return self._verifiers.get(name, {})

    def verifier(self, name: str, mechanism: str) -> Verifier:
        """What to compare with. Of a user there is not it is made up, always the same, and like a real one: nobody learns who
        there is, by what they are told or by how long they wait."""
        found = self._verifiers.get(name, {}).get(mechanism)
        if found is not None:
            return found
        made_up = hmac.digest(self._decoy, f"{mechanism} {name}".encode(), "sha512")
        size = len(hmac.digest(b"", b"", HASHES[mechanism]))
        return Verifier(
            made_up[:_SALT_BYTES], ITERATIONS_DEFAULT, self._chance.randbytes(size), self._chance.randbytes(size)
        )

    def tokens(self, name: str) -> Mapping[str, ApiToken]:
        """By their ids."""
        return self._tokens.get(name, {})

    def owner_of(self, given: NewToken, now_ms: int) -> str:
        """Whose token it is; raises `Denied` for one that is not known, is over, or has another secret."""
        owner = self._owners.get(given.id, "")
        kept = self.tokens(owner).get(given.id)
        if kept is None or not fits(kept, given) or kept.is_over(now_ms):
            raise Denied("wrong token")
        return owner

    async def check_password(self, name: str, password: str) -> Verifier:
        """The verifier that it fits; raises `Denied`. Takes as long for a user there is not."""
        known = self.verifiers(name)
        mechanism = next((each for each in ("SCRAM-SHA-512", "SCRAM-SHA-256") if each in known), "SCRAM-SHA-512")
        verifier = self.verifier(name, mechanism)
        given = await self.derive(mechanism, password, verifier.salt, verifier.iterations)
        if not hmac.compare_digest(given.stored_key, verifier.stored_key):
            raise Denied("wrong user or password")
        return verifier

    async def new_verifiers(self, password: str) -> dict[str, Verifier]:
        """For a new password: one for each mechanism, so that clients can choose."""
        if not 1 <= len(password) <= PASSWORD_LENGTH_MAX:
            raise Invalid(f"a password has 1 to {PASSWORD_LENGTH_MAX} characters")
        return {
            mechanism: await self.derive(mechanism, password, self._chance.randbytes(_SALT_BYTES), ITERATIONS_DEFAULT)
            for mechanism in HASHES
        }

    async def derive(self, mechanism: str, password: str, salt: bytes, iterations: int) -> Verifier:
        loop = asyncio.get_running_loop()
        salted = await loop.run_in_executor(
            self._hashing, salted_password, mechanism, password[:PASSWORD_LENGTH_MAX], salt, iterations
        )
        return verifier_of(mechanism, salted, salt, iterations)

    def apply(self, key: keys.UserKey, value: bytes | None) -> bool:
        """False for a user that this version cannot read: who it is that may log in, and how, is not known."""
        self._verifiers.pop(key.name, None)
        for token in self._tokens.pop(key.name, {}):
            self._owners.pop(token, None)
        self.not_understood.discard(key.name)
        if value is None:
            return True
        try:
            stored = decode_whole(pb.User, value)
        except (Corrupted, NewerFormat) as error:
            log.error("a user is not understood", user=key.name, reason=str(error))
            self.not_understood.add(key.name)
            return False
        self._verifiers[key.name] = {
            mechanism: Verifier(each.salt, each.iterations, each.stored_key, each.server_key)
            for mechanism, each in stored.verifiers.items()
        }
        if tokens := decode_tokens(stored):
            self._tokens[key.name] = tokens
            self._owners.update(dict.fromkeys(tokens, key.name))
        return True

    def take_decoy(self, value: bytes) -> None:
        self._decoy = value


def encode_user(verifiers: Mapping[str, Verifier], tokens: Mapping[str, ApiToken]) -> bytes:
    return values.encode(
        pb.User(
            api_tokens=encode_tokens(tokens),
            verifiers={
                mechanism: pb.ScramVerifier(
                    salt=each.salt,
                    iterations=each.iterations,
                    stored_key=each.stored_key,
                    server_key=each.server_key,
                )
                for mechanism, each in verifiers.items()
            },
        )
    )
