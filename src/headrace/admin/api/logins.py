"""How people and programs are logged in: tokens of the API, and sessions of the console. A token is shown once, and never again."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.security import UserName
from headrace.admin.api.topics import Done
from headrace.admin.login.sessions import Session
from headrace.broker.access.api_tokens import NOTE_LENGTH_MAX
from headrace.errors import ResourceNotFound

DAYS_MAX: Final = 3_650
_DAY_MS: Final = 24 * 3_600_000
TokenId = Annotated[str, Meta(min_length=1, max_length=100)]


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    """Its id: what stands between `hr_` and the secret."""
    note: str
    created_ms: int
    expires_ms: int
    """0 is never."""


class ListTokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[TokenRow]


class CreateToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    days: Annotated[int, Meta(ge=0, le=DAYS_MAX)] = 90
    """How long it is good; 0 is until it is revoked."""
    note: Annotated[str, Meta(max_length=NOTE_LENGTH_MAX)] = ""
    """What it is for."""
    dry_run: bool = False


class TokenMade(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    """Its id."""
    secret: str
    """The token itself, as `Authorization: Bearer` takes it. Nobody can show it again; empty in a dry run."""
    expires_ms: int
    is_dry_run: bool = False


class RevokeToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    token: TokenId
    dry_run: bool = False


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    user: str
    address: str
    created_ms: int
    expires_ms: int


class ListSessions(PageRequest, frozen=True):
    pass


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[SessionRow]
    next_page_token: str = ""
    total: int


class EndSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: TokenId
    dry_run: bool = False


async def list_tokens(request: ListTokens, call: Call) -> TokenList:
    _require_user(request.user, call)
    found = call.broker.access.users.tokens(request.user)
    rows = [
        TokenRow(token=name, note=each.note, created_ms=each.created_ms, expires_ms=each.expires_ms)
        for name, each in found.items()
    ]
    return TokenList(tokens=sorted(rows, key=lambda row: (row.created_ms, row.token)))


async def create_token(request: CreateToken, call: Call) -> TokenMade:
    _require_user(request.user, call)
    now_ms = call.broker.clock.now_ms()
    expires_ms = now_ms + request.days * _DAY_MS if request.days else 0
    if request.dry_run:
        return TokenMade(token="", secret="", expires_ms=expires_ms, is_dry_run=True)
    made = await call.broker.access.make_token(
        request.user, now_ms=now_ms, expires_ms=expires_ms, note=request.note, by=call.author
    )
    return TokenMade(token=made.id, secret=made.text, expires_ms=expires_ms)


async def revoke_token(request: RevokeToken, call: Call) -> Done:
    _require_user(request.user, call)
    if request.token not in call.broker.access.users.tokens(request.user):
        raise ResourceNotFound(f"user {request.user!r} has no token {request.token!r}")
    if not request.dry_run:
        await call.broker.access.revoke_token(request.user, request.token, call.author)
    return Done(message=f"token {request.token} of {request.user} is revoked", is_dry_run=request.dry_run)


async def list_sessions(request: ListSessions, call: Call) -> SessionList:
    page = await page_of(
        call.parts.gate.sessions.all(),
        request,
        turns=call.turns,
        name=lambda each: f"{each.user} {each.id}",
        orders={"created": lambda each: each.created_ms},
    )
    return SessionList(
        sessions=[_session_row(each) for each in page.items], next_page_token=page.next_token, total=page.total
    )


async def end_session(request: EndSession, call: Call) -> Done:
    sessions = call.parts.gate.sessions
    if not any(each.id == request.session for each in sessions.all()):
        raise ResourceNotFound(f"there is no session {request.session!r}")
    if not request.dry_run:
        sessions.end_by_id(request.session)
    return Done(message=f"session {request.session} is ended", is_dry_run=request.dry_run)


def _require_user(name: str, call: Call) -> None:
    if not call.broker.access.users.verifiers(name):
        raise ResourceNotFound(f"there is no user {name!r}")


def _session_row(session: Session) -> SessionRow:
    return SessionRow(
        session=session.id,
        user=session.user,
        address=session.address,
        created_ms=session.created_ms,
        expires_ms=session.expires_ms,
    )
