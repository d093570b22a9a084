"""The console as an ASGI application: guard, page, answers of the API, HTML.

Pages are rendered in a thread: a table of a hundred rows takes some milliseconds, and producers should not wait for them. Every
link is relative, so that the console works below a path and behind a proxy without being told.
"""

import asyncio
import hashlib
from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from headrace.admin.api.calls import Parts
from headrace.admin.api.elsewhere import hint_of
from headrace.admin.console import formats
from headrace.admin.console.forms import COOKIE, FormTokens, read_form
from headrace.admin.console.login import PATHS as LOGIN_PATHS
from headrace.admin.console.login import LoginPages, target_of
from headrace.admin.console.pages import PAGES
from headrace.admin.console.views import Asking, Page, View
from headrace.admin.errors import status_of
from headrace.admin.guard import SECURITY_HEADERS, Guard, reached_address
from headrace.admin.login.callers import caller_of
from headrace.admin.login.cookies import session_of
from headrace.admin.rights import Principal
from headrace.chance import SYSTEM_CHANCE
from headrace.errors import HeadraceError, NotFound, Unauthenticated
from headrace.telemetry.logging import get_logger

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_PRINCIPAL: Final = "headrace.principal"
_NOTES_MAX: Final = 200
"""What was done by a form, until the page after it has said so."""

log = get_logger(__name__)


class Console:
    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._parts = parts
        self._guard = guard
        self._tokens = FormTokens()
        self._login = LoginPages(parts.gate, self._tokens, self._render)
        self._notes: OrderedDict[str, str] = OrderedDict()
        self._rendering = asyncio.Lock()
        self._files = {path.name: path.read_bytes() for path in (_HERE / "static").iterdir() if path.suffix in _TYPES}
        self._versions = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in self._files.items()}
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            size=formats.size,
            count=formats.count,
            short=formats.short,
            duration=formats.duration,
            moment=formats.moment,
            dollars=formats.dollars,
            segment=lambda text: quote(str(text), safe=""),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace").partition("?")[0]
        try:
            response = await self._respond(request, path)
        except ClientDisconnect:
            return
        except HeadraceError as error:
            hint = hint_of(error, self._parts.broker.identity, "admin") if request.method == "GET" else None
            view = View("problem.html", title="Not possible", error=str(error), hint=hint)
            response = await self._render(view, request, path)
            response.status_code = status_of(error)
        except Exception:
            log.exception("page failed", method=request.method, path=path)
            view = View("problem.html", title="Something broke", error="The node's log has the rest.", hint=None)
            response = await self._render(view, request, path)
            response.status_code = HTTPStatus.INTERNAL_SERVER_ERROR
        await response(scope, receive, send)

    async def _respond(self, request: Request, path: str) -> Response:
        is_change = request.method not in ("GET", "HEAD")
        self._guard.check(request.headers, is_change=is_change, reached=reached_address(request.scope))
        if path.startswith("/static/"):
            return self._static(path)
        if path in LOGIN_PATHS:
            return await self._login.respond(request, path)
        session = session_of(request)
        try:
            principal = await self._parts.gate.principal_of(caller_of(request, session=session))
        except Unauthenticated:
            if is_change or "authorization" in request.headers:
                raise
            return self._to_login(request, path)
        request.scope[_PRINCIPAL] = principal
        page, names = _find(request.method, path)
        asking = Asking(self._parts, principal, names, _query_of(request))
        if request.method == "POST":
            asking.form = await read_form(request)
            self._tokens.check(request.cookies.get(COOKIE, ""), session, asking.form.pop("token", ""))
        found = await page.show(asking)
        if isinstance(found, Response):
            found.headers.update(SECURITY_HEADERS)
            return found
        if found.goes_to is not None:
            return self._redirect(found.goes_to, found.note, path)
        return await self._render(found, request, path)

    def _static(self, path: str) -> Response:
        name = path.removeprefix("/static/")
        data = self._files.get(name)
        if data is None:
            raise NotFound(f"no file {name[:100]!r}")
        headers = {"cache-control": "public, max-age=31536000, immutable", **SECURITY_HEADERS}
        return Response(data, media_type=_TYPES[Path(name).suffix], headers=headers)

    def _to_login(self, request: Request, path: str) -> Response:
        query = request.scope["query_string"].decode("ascii", "replace")
        wanted = target_of(path.lstrip("/") + ("?" + query if query else ""))
        return RedirectResponse(
            f"{_root(path)}login" + (f"?to={quote(wanted, safe='')}" if wanted else ""),
            status_code=HTTPStatus.SEE_OTHER,
            headers={"cache-control": "no-store", **SECURITY_HEADERS},
        )

    def _redirect(self, goes_to: str, note: str, path: str) -> Response:
        number = SYSTEM_CHANCE.randbytes(9).hex()
        self._notes[number] = note
        while len(self._notes) > _NOTES_MAX:
            self._notes.popitem(last=False)
        sign = "&" if "?" in goes_to else "?"
        return RedirectResponse(
            f"{_root(path) or './'}{goes_to}{sign}note={number}",
            status_code=HTTPStatus.SEE_OTHER,
            headers=SECURITY_HEADERS,
        )

    async def _render(self, view: View, request: Request, path: str) -> Response:
        cookie = request.cookies.get(COOKIE) or self._tokens.new_cookie()
        query = _query_of(request)
        principal: Principal | None = request.scope.get(_PRINCIPAL)
        session = session_of(request)

        def link(**changes: object) -> str:
            """This page with other parameters: every view is a URL."""
            merged = {**query, **changes}
            return "?" + urlencode({name: value for name, value in merged.items() if value not in (None, "")})

        context = {
            "root": _root(path),
            "path": path,
            "scheme": request.url.scheme,
            "version": self._versions,
            "token": self._tokens.token_for(cookie, session),
            "note": self._notes.get(query.get("note", ""), "") if principal is not None else "",
            "who": None if principal is None else principal.name.removeprefix("User:"),
            "has_session": bool(session) and principal is not None,
            "can_log_in": self._parts.gate.has_users,
            "health": self._parts.health(),
            "query": query,
            "link": link,
            "now_ms": self._parts.broker.clock.now_ms(),
            **view.context,
        }
        # One at a time: every thread that renders wants the interpreter, and so does whoever answers producers.
        async with self._rendering:
            text = await asyncio.to_thread(self._templates.get_template(view.template).render, context)
        response = Response(text, media_type="text/html", headers={"cache-control": "no-store", **SECURITY_HEADERS})
        if COOKIE not in request.cookies:
            is_secure = request.scope.get("scheme") == "https"
            response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=is_secure, path="/")
        return response


def _root(path: str) -> str:
    """From a page back to the console's first one, in the browser's own terms."""
    return "../" * (path.count("/") - 1)


def _query_of(request: Request) -> dict[str, str]:
    text = request.scope["query_string"].decode("ascii", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=50))
    except ValueError:
        return {}


def _find(method: str, path: str) -> tuple[Page, dict[str, str]]:
    parts = path.strip("/").split("/")
    for page in PAGES:
        expected = page.path.strip("/").split("/")
        if page.method != method or len(expected) != len(parts):
            continue
        if all(want.startswith("{") or want == part for want, part in zip(expected, parts, strict=True)):
            names = zip(expected, parts, strict=True)
            return page, {want[1:-1]: unquote(part) for want, part in names if want.startswith("{")}
    raise NotFound("There is no such page.")
