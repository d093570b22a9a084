"""Logging in and out at the console: pages that are there for whoever has not said yet who they are."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.admin.console.forms import COOKIE, FormTokens, read_form
from headrace.admin.console.views import View
from headrace.admin.guard import SECURITY_HEADERS
from headrace.admin.login.callers import Caller, caller_of
from headrace.admin.login.cookies import forget_session, session_of, set_session
from headrace.admin.login.entrance import Entrance
from headrace.errors import Invalid, NotFound, Rejected, Unauthenticated

PATHS: Final = ("/login", "/logout")
_TARGET: Final = re.compile(r"(?!.*(//|\.\.))[A-Za-z0-9_%.?=&+~-][A-Za-z0-9_%./?=&+~-]*")
"""A page of ours, from the first one: no scheme, no host, nothing that a browser could take for one."""
_TARGET_LENGTH_MAX: Final = 2_000

Render = Callable[[View, Request, str], Awaitable[Response]]


class LoginPages:
    def __init__(self, entrance: Entrance, tokens: FormTokens, render: Render) -> None:
        self._entrance = entrance
        self._tokens = tokens
        self._render = render

    async def respond(self, request: Request, path: str) -> Response:
        if request.method in ("GET", "HEAD") and path == "/login":
            return await self._page(request)
        if request.method != "POST":
            raise NotFound("There is no such page.")
        form = await read_form(request)
        session = session_of(request)
        self._tokens.check(request.cookies.get(COOKIE, ""), session, form.pop("token", ""))
        if path == "/logout":
            self._entrance.sessions.end(session)
            response: Response = RedirectResponse("login", status_code=HTTPStatus.SEE_OTHER, headers=SECURITY_HEADERS)
            forget_session(response, request)
            return response
        return await self._log_in(request, form, session)

    async def _page(self, request: Request, *, to: str = "", error: str = "") -> Response:
        first = request.query_params.get("first", "")
        if first:
            self._entrance.first.check(first)
        view = View(
            "login.html",
            title="The first user" if first else "Log in",
            first=first,
            to=target_of(to or request.query_params.get("to", "")),
            error=error,
            is_nobody_there=self._entrance.first.is_possible,
        )
        return await self._render(view, request, "/login")

    async def _log_in(self, request: Request, form: dict[str, str], session: str) -> Response:
        caller = caller_of(request)
        user, password = form.get("user", "").strip(), form.get("password", "")
        try:
            self._entrance.check_secrecy(caller)
            if "first" in form:
                await self._make_first(form, user, password)
            cookie = await self._begin(user, password, caller)
        except Rejected as error:
            response = await self._page(request, to=form.get("to", ""), error=str(error))
            is_wrong = isinstance(error, Unauthenticated)
            response.status_code = HTTPStatus.UNAUTHORIZED if is_wrong else HTTPStatus.BAD_REQUEST
            return response
        self._entrance.sessions.end(session)
        goes_to = target_of(form.get("to", "")) or "./"
        response = RedirectResponse(goes_to, status_code=HTTPStatus.SEE_OTHER, headers=SECURITY_HEADERS)
        set_session(response, request, cookie)
        return response

    async def _make_first(self, form: dict[str, str], user: str, password: str) -> None:
        if password != form.get("again", ""):
            raise Invalid("these were two different passwords")
        await self._entrance.first.make(form["first"], user, password)

    async def _begin(self, user: str, password: str, caller: Caller) -> str:
        if not user or not password:
            raise Unauthenticated("wrong user or password")
        verifier = await self._entrance.check_password(user, password, caller)
        return self._entrance.sessions.begin(user, verifier, caller.host)


def target_of(given: str) -> str:
    """Where to go on after a login; empty for what is not a page of ours."""
    return given if len(given) <= _TARGET_LENGTH_MAX and _TARGET.fullmatch(given) else ""
