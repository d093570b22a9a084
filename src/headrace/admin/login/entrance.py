"""The gate of the admin port: who somebody is, and what they may do.

They are, in this order: the owner, who came through the socket in the data directory; whom their `Authorization` header proves
(a password, a token of ours, a token of the login service); whose session their cookie is; whom their certificate names; and, where
nobody is made to log in, the listener's principal, for callers of this machine or of an open listener. What is given is checked,
also where nothing was asked for: a wrong password is never taken for none.
"""

import asyncio
import base64
import hmac
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec
import structlog

from headrace.admin.login.attempts import Attempts
from headrace.admin.login.callers import Caller
from headrace.admin.login.first import FirstLogin
from headrace.admin.login.sessions import Sessions
from headrace.admin.rights import Operation, Principal, Resource
from headrace.broker.access import words
from headrace.broker.access.api_tokens import PREFIX, read_token
from headrace.broker.access.scram import Verifier
from headrace.broker.access.service import OWNER, Access, Guard
from headrace.chance import SYSTEM_CHANCE
from headrace.clock import Clock
from headrace.errors import Denied, Unauthenticated

HEADER_BYTES_MAX: Final = 16 * 1024
_GUARDS_MAX: Final = 1_000
_REMEMBERED_MAX: Final = 1_000
_REMEMBERED_MS: Final = 60_000
"""How long a right password need not be hashed again: programs send it with every request."""

log = structlog.get_logger(__name__)


class EntranceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings file says of the admin port."""

    is_login_asked: bool = False
    """Nobody comes in without saying who they are."""
    is_open: bool = False
    """Who says nothing is served from other machines too."""
    principal: str | None = None
    """Who says nothing is this."""
    is_plain_allowed: bool = False
    """Passwords and tokens may come over a network without TLS."""
    session_ms: int = 12 * 3600 * 1000


class Entrance:
    def __init__(self, access: Access, settings: EntranceSettings, clock: Clock, directory: Path | None = None) -> None:
        """`directory` is the node's own: the address of the first login is written there."""
        self._access = access
        self._settings = settings
        self._clock = clock
        self.attempts = Attempts(clock)
        self.sessions = Sessions(access.users, clock, lasts_ms=settings.session_ms)
        self.first = FirstLogin(access, directory)
        self._secret = SYSTEM_CHANCE.randbytes(32)
        self._remembered: OrderedDict[bytes, tuple[Verifier, int]] = OrderedDict()
        self._guards: OrderedDict[Principal, Guard] = OrderedDict()

    # -- who -----------------------------------------------------------------------------------------------------

    @property
    def is_login_asked(self) -> bool:
        return self._settings.is_login_asked

    @property
    def has_users(self) -> bool:
        return len(self._access.users) > 0

    async def principal_of(self, caller: Caller) -> Principal:
        """Raises `Unauthenticated` when that is not known, or not proved."""
        if caller.is_owner:
            return Principal(str(OWNER))
        if caller.authorization:
            return _principal(await self._by_header(caller), caller)
        if caller.session and (session := self.sessions.find(caller.session)) is not None:
            return _principal(session.user, caller)
        if caller.certificate is not None:
            return Principal(caller.certificate, caller.host)
        return self._by_place(caller)

    def _by_place(self, caller: Caller) -> Principal:
        settings = self._settings
        if settings.is_login_asked:
            raise Unauthenticated(
                "log in first: with a password or a token in the Authorization header, or at the console"
            )
        if not caller.is_local and not settings.is_open:
            raise Unauthenticated(
                "the API and the console answer this machine only, and whoever logs in: with a password or a token"
            )
        if settings.principal is not None:
            return Principal(settings.principal, caller.host)
        is_known = caller.is_local and not self._access.is_on
        return Principal("User:local" if is_known else str(words.ANONYMOUS), caller.host)

    async def _by_header(self, caller: Caller) -> str:
        self.check_secrecy(caller)
        kind, _, given = caller.authorization.partition(" ")
        if len(caller.authorization) > HEADER_BYTES_MAX or kind.lower() not in ("basic", "bearer"):
            raise Unauthenticated("the Authorization header takes Basic and Bearer")
        if kind.lower() == "bearer":
            return await self._by_token(given.strip(), caller)
        user, password = _read_basic(given)
        await self.check_password(user, password, caller)
        return user

    def check_secrecy(self, caller: Caller) -> None:
        """A password that came in the clear is known to others already; that it is said keeps the next one from it."""
        if not (caller.is_secure or caller.is_local or caller.is_owner or self._settings.is_plain_allowed):
            raise Denied(
                "passwords and tokens are taken over TLS only (listener.admin.tls.certificate), unless security.plain.insecure is set"
            )

    async def _by_token(self, text: str, caller: Caller) -> str:
        with self.attempts.one(caller.host):
            try:
                if text.startswith(PREFIX) or self._access.tokens is None:
                    given = read_token(text)
                    if given is None:
                        raise Denied("not a token")
                    return self._access.users.owner_of(given, self._clock.now_ms())
                # Beside the loop: a signature takes as long as many requests, and the file of keys may have changed.
                bearer = await asyncio.to_thread(self._access.tokens.read, text, self._clock.now_ms())
                return bearer.name
            except Denied as error:
                await self._refuse(caller)
                raise Unauthenticated("wrong token") from error

    async def check_password(self, user: str, password: str, caller: Caller) -> Verifier:
        """What it was compared with; raises `Unauthenticated`, after a while, in the same words whatever was wrong."""
        digest = hmac.digest(self._secret, f"{user}\0{password}".encode("utf-8", "surrogatepass"), "sha256")
        if (known := self._recall(digest, user)) is not None:
            return known
        with self.attempts.one(caller.host):
            try:
                verifier = await self._access.users.check_password(user, password)
                if verifier not in self._access.users.verifiers(user).values():
                    raise Denied("gone while it was being compared")
            except Denied as error:
                await self._refuse(caller)
                raise Unauthenticated("wrong user or password") from error
        self.attempts.succeeded(caller.host)
        self._remembered[digest] = (verifier, self._clock.monotonic_ms() + _REMEMBERED_MS)
        while len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return verifier

    def _recall(self, digest: bytes, user: str) -> Verifier | None:
        verifier, until_ms = self._remembered.get(digest, (None, 0))
        if verifier is None:
            return None
        if self._clock.monotonic_ms() >= until_ms or verifier not in self._access.users.verifiers(user).values():
            del self._remembered[digest]
            return None
        return verifier

    async def _refuse(self, caller: Caller) -> None:
        """Not as whom: people type passwords where their name belongs."""
        delay_s = self.attempts.refused(caller.host)
        log.info("login refused", door="admin", peer=caller.host)
        if self._access.audit is not None:
            self._access.audit.login_refused(caller.host, "admin")
        await asyncio.sleep(delay_s)

    # -- may they ------------------------------------------------------------------------------------------------

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return self.guard(principal).may(words.Operation[operation.name], words.Resource[resource.name], name)

    def sees(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        if not self._access.is_on:
            return True  # Lists ask it for each of ten thousand names.
        return self.guard(principal).sees(words.Operation[operation.name], words.Resource[resource.name], name)

    def guard(self, principal: Principal) -> Guard:
        """As one that comes again and again: refusals are noted once, until a rule changes."""
        found = self._guards.pop(principal, None)
        if found is None:
            found = self._access.guard(words.parse_principal(principal.name), principal.host)
        self._guards[principal] = found
        while len(self._guards) > _GUARDS_MAX:
            self._guards.popitem(last=False)
        return found


def _principal(user: str, caller: Caller) -> Principal:
    return Principal(str(words.Principal(user)), caller.host)


def _read_basic(given: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError as error:
        raise Unauthenticated("not a Basic header") from error
    if not colon or not user or not password:
        raise Unauthenticated("wrong user or password")
    return user, password
