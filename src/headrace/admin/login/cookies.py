"""The cookie of a session. Browsers keep cookies by name and host, whatever the port: nodes side by side have names of their own."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_NAME: Final = "headrace_session"


def session_of(request: Request) -> str:
    return request.cookies.get(_name(request), "")


def set_session(response: Response, request: Request, cookie: str) -> None:
    """It ends with the browser, or sooner, as the node decides."""
    is_secure = request.scope.get("scheme") == "https"
    response.set_cookie(_name(request), cookie, httponly=True, samesite="strict", secure=is_secure, path="/")


def forget_session(response: Response, request: Request) -> None:
    response.delete_cookie(_name(request), path="/", httponly=True, samesite="strict")


def _name(request: Request) -> str:
    server = request.scope.get("server")
    return f"{_NAME}_{server[1]}" if server else _NAME
