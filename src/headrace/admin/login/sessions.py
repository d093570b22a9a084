"""The console's logins: a random number in a cookie, and who it stands for. Kept in memory, so a restart ends them all.

A session ends when it is logged out of or taken away, when its time is over, and with the password it was opened by: a user who is
deleted or gets another password has none left.
"""

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from headrace.broker.access.scram import Verifier
from headrace.broker.access.users import Users
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock

SESSIONS_MAX: Final = 1_000
SESSIONS_PER_USER_MAX: Final = 20
"""Past either the oldest one ends."""
_ID_LENGTH: Final = 16


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """What administrators call it: made of the cookie, and no way back to it."""
    user: str
    verifier: Verifier
    """What the password was compared with."""
    address: str
    created_ms: int
    expires_ms: int

    def __repr__(self) -> str:
        return f"Session({self.id}, {self.user!r})"


class Sessions:
    def __init__(self, users: Users, clock: Clock, *, lasts_ms: int, chance: Chance = SYSTEM_CHANCE) -> None:
        self._users = users
        self._clock = clock
        self._lasts_ms = lasts_ms
        self._chance = chance
        self._open: OrderedDict[str, Session] = OrderedDict()
        """By the digest of the cookie, the oldest first: who reads this memory has no cookie."""

    def begin(self, user: str, verifier: Verifier, address: str) -> str:
        """The cookie of a new session."""
        cookie = self._chance.randbytes(32).hex()
        now_ms = self._clock.now_ms()
        digest = _digest(cookie)
        self._open[digest] = Session(
            id=digest[:_ID_LENGTH],
            user=user,
            verifier=verifier,
            address=address,
            created_ms=now_ms,
            expires_ms=now_ms + self._lasts_ms,
        )
        mine = [key for key, each in self._open.items() if each.user == user]
        for key in mine[:-SESSIONS_PER_USER_MAX]:
            del self._open[key]
        while len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """None for one that there never was, or is over."""
        digest = _digest(cookie)
        found = self._open.get(digest)
        if found is not None and self._is_over(found):
            del self._open[digest]
            return None
        return found

    def end(self, cookie: str) -> None:
        self._open.pop(_digest(cookie), None)

    def end_by_id(self, number: str) -> bool:
        """False where there is none of that id."""
        found = [key for key, each in self._open.items() if each.id == number]
        for key in found:
            del self._open[key]
        return bool(found)

    def all(self) -> list[Session]:
        """The newest first."""
        return [each for each in reversed(self._open.values()) if not self._is_over(each)]

    def _is_over(self, session: Session) -> bool:
        if self._clock.now_ms() >= session.expires_ms:
            return True
        return session.verifier not in self._users.verifiers(session.user).values()


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
