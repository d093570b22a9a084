"""What the console's own forms send: read, and known to be ours.

A form carries a token made from the browser's cookies, that of its session among them, and a secret of this process. Another site can send neither: the cookie is
SameSite=Strict, and the token cannot be guessed. It comes beside the checks of `guard.py`, not instead of them.
"""

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from headrace.chance import SYSTEM_CHANCE
from headrace.errors import Denied, Invalid, TooLarge

COOKIE: Final = "headrace_form"
_BYTES_MAX: Final = 4 * 1024 * 1024
_FIELDS_MAX: Final = 200


class FormTokens:
    def __init__(self) -> None:
        self._secret = SYSTEM_CHANCE.randbytes(32)

    def new_cookie(self) -> str:
        return SYSTEM_CHANCE.randbytes(24).hex()

    def token_for(self, cookie: str, session: str) -> str:
        return hmac.new(self._secret, f"{cookie}\0{session}".encode(), hashlib.sha256).hexdigest()

    def check(self, cookie: str, session: str, token: str) -> None:
        if not cookie or not hmac.compare_digest(self.token_for(cookie, session).encode(), token.encode()):
            raise Denied(
                "this form is not ours, or was open since before the node started or the last login: load the page again"
            )


async def read_form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Invalid("expected a form")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _BYTES_MAX:
            raise TooLarge(f"form of more than {_BYTES_MAX} bytes")
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
        )
    except ValueError as error:
        raise Invalid(f"form: {error}") from error
