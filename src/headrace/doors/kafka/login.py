"""How a client of a listener with `sasl` proves who it is: SaslHandshake names a mechanism, SaslAuthenticate carries its messages.

Until then it is a stranger: a few small frames of four kinds, for a few seconds, from an address that has not too many of them.
"""

import asyncio
import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.access.scram import Challenge, Verifier, read_first
from headrace.broker.access.service import Access
from headrace.broker.access.words import Principal
from headrace.broker.deferred import Deferred
from headrace.clock import Clock
from headrace.errors import Denied, MalformedRequest
from headrace.wire.kafka.api_keys import ApiKey

if TYPE_CHECKING:
    from headrace.broker.access.tokens import Bearer

STRANGER_FRAME_MAX: Final = 64 * 1024
STRANGER_SECONDS_MAX: Final = 10.0
STRANGERS_PER_HOST_MAX: Final = 200
STRANGERS_MAX: Final = 2_000
REFUSED_DELAY_S: Final = 0.2
"""A wrong password costs whoever tries many of them at least this; as Kafka's `connection.failed.authentication.delay.ms`."""
_BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_NONCE_BYTES: Final = 24


class Login:
    """One connection's: begun anew by every handshake, also when a login is about to run out (KIP-368)."""

    __slots__ = (
        "_access",
        "_challenge",
        "_claimed",
        "_mechanism",
        "_mechanisms",
        "_user",
        "_verifier",
        "expires_ms",
        "is_bare",
        "is_done",
        "principal",
        "under_way",
    )

    def __init__(self, access: Access, mechanisms: Sequence[str]) -> None:
        self._access = access
        self._mechanisms = mechanisms
        self._mechanism: str | None = None
        self._challenge: Challenge | None = None
        self._claimed: tuple[str, Verifier]
        self._user = ""
        self._verifier: Verifier | None = None
        """What the password was compared with: another one since ends this login."""
        self.principal: Principal | None = None
        self.is_done = False
        self.is_bare = False
        """Messages come without requests around them, as after SaslHandshake v0, until the login is done."""
        self.expires_ms = 0
        """When they have to log in again; 0 is never."""
        self.under_way: Deferred[str] | None = None
        """A message of theirs is being looked at: the next request waits for what comes of it, so nobody gets many guesses at
        once, and whoever sends requests right behind a login that succeeds is served."""

    @property
    def mechanisms(self) -> Sequence[str]:
        return self._mechanisms

    def admits(self, key: int, clock: Clock) -> bool:
        """Whether a request of this kind may come now."""
        if key in _BEFORE_LOGIN:
            return True
        return self.is_done and not (self.expires_ms and self.is_over(clock.now_ms()))

    def is_over(self, now_ms: int) -> bool:
        return bool(self.expires_ms) and now_ms >= self.expires_ms

    def is_revoked(self) -> bool:
        """Whether the user is gone, or has another password."""
        return self._verifier is not None and self._verifier not in self._access.users.verifiers(self._user).values()

    def choose(self, mechanism: str) -> bool:
        """False for a mechanism that this listener does not take."""
        self._challenge = None
        self._mechanism = mechanism if mechanism in self._mechanisms else None
        return self._mechanism is not None

    @property
    def is_chosen(self) -> bool:
        return self._mechanism is not None

    def begin_step(self) -> None:
        self.under_way = Deferred()

    def end_step(self) -> None:
        under_way, self.under_way = self.under_way, None
        assert under_way is not None
        under_way.resolve("")

    async def step(self, message: bytes, clock: Clock) -> bytes:
        """The answer to one message; `is_done` afterwards if that was the last one. Raises `Denied` or `MalformedRequest`."""
        if self._mechanism == "PLAIN":
            user, password = _read_plain(message)
            verifier = await self._access.users.check_password(user, password)
            self._finish(user, verifier, clock)
            return b""
        if self._mechanism == "OAUTHBEARER":
            bearer = await self._read_token(message, clock)
            self._finish(bearer.name, None, clock, bearer.expires_ms)
            return b""
        assert self._mechanism is not None
        if self._challenge is None:
            first = read_first(message)
            verifier = self._access.users.verifier(first.user, self._mechanism)
            self._claimed = (first.user, verifier)
            nonce = base64.urlsafe_b64encode(self._access.chance.randbytes(_NONCE_BYTES)).decode()
            self._challenge = Challenge(self._mechanism, first, verifier, nonce=nonce)
            return self._challenge.challenge.encode()
        challenge, self._challenge = self._challenge, None
        proof = challenge.verify(message)
        self._finish(*self._claimed, clock)
        return proof

    async def _read_token(self, message: bytes, clock: Clock) -> "Bearer":
        tokens = self._access.tokens
        assert tokens is not None
        authzid, token = _read_bearer(message)
        # Beside the loop: a signature takes as long as many requests, and the file of keys may have changed.
        bearer = await asyncio.to_thread(tokens.read, token, clock.now_ms())
        if authzid not in ("", bearer.name):
            raise Denied("an authorization id that differs from the token's is not supported")
        return bearer

    def _finish(self, user: str, verifier: Verifier | None, clock: Clock, expires_ms: int = 0) -> None:
        """`verifier` is what a password was compared with, `expires_ms` when a token is over."""
        if verifier is not None and verifier not in self._access.users.verifiers(user).values():
            raise Denied("wrong user or password")  # Gone while it was being compared.
        if self.principal is not None and self.principal != Principal(user):
            raise Denied("a new login must be that of the same user")
        self._user, self._verifier = user, verifier
        self._mechanism = None
        self.principal = Principal(user)
        self.is_done = True
        self.is_bare = False
        lifetime_ms = self._access.reauth_max_ms
        ends = [clock.now_ms() + lifetime_ms] if lifetime_ms else []
        self.expires_ms = min([*ends, expires_ms] if expires_ms else ends, default=0)


def _read_plain(message: bytes) -> tuple[str, str]:
    """RFC 4616: an authorization id, a user and a password, with NULs between them."""
    try:
        authzid, user, password = message.decode().split("\0")
    except ValueError as error:
        raise MalformedRequest("not a PLAIN message") from error
    if not user or not password:
        raise Denied("wrong user or password")
    if authzid not in ("", user):
        raise Denied("an authorization id that differs from the user is not supported")
    return user, password


def _read_bearer(message: bytes) -> tuple[str, str]:
    """RFC 7628: an authorization id and a token, in `n,a=ID,^Aauth=Bearer TOKEN^A^A`; other pairs are extensions."""
    try:
        header, *pairs, last, end = message.decode().split("\1")
        flag, authzid, rest = header.split(",")
    except ValueError as error:
        raise MalformedRequest("not an OAUTHBEARER message") from error
    given = [pair.removeprefix("auth=") for pair in (*pairs, last) if pair.startswith("auth=")]
    kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if flag != "n" or rest or last or end or kind.lower() != "bearer" or (authzid and not authzid.startswith("a=")):
        raise MalformedRequest("not an OAUTHBEARER message")
    return authzid.removeprefix("a="), token.strip(" ")


class Strangers:
    """Connections that have not logged in: how many there are, from where, and since when."""

    def __init__(self) -> None:
        self._since: dict[Any, tuple[str, float]] = {}  # Any: connections, which know this module
        self._per_host: dict[str, int] = {}

    def admit(self, connection: object, host: str) -> bool:
        if len(self._since) >= STRANGERS_MAX or self._per_host.get(host, 0) >= STRANGERS_PER_HOST_MAX:
            return False
        self._since[connection] = (host, time.monotonic())
        self._per_host[host] = self._per_host.get(host, 0) + 1
        return True

    def leave(self, connection: object) -> None:
        host, _ = self._since.pop(connection, (None, 0.0))
        if host is not None:
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

    def is_overdue(self, connection: object) -> bool:
        _, since = self._since.get(connection, ("", time.monotonic()))
        return time.monotonic() - since > STRANGER_SECONDS_MAX
