"""Idempotency-Key: a POST that comes again gets the answer of the first, and is not done again.

Kept in memory, the last ones only. A client that repeats a request after the node was restarted does it again.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response

from headrace.admin.errors import RepeatedKey
from headrace.errors import Invalid

KEPT_MAX: Final = 1000
KEY_LENGTH_MAX: Final = 200


class Repeats:
    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, asyncio.Future[Response]]] = OrderedDict()

    async def once(self, key: str, request: bytes, do: Callable[[], Awaitable[Response]]) -> Response:
        if len(key) > KEY_LENGTH_MAX:
            raise Invalid(f"Idempotency-Key of {len(key)} characters; {KEY_LENGTH_MAX} are possible")
        digest = hashlib.sha256(request).digest()
        known = self._known.get(key)
        if known is not None:
            if known[0] != digest:
                raise RepeatedKey("this Idempotency-Key was used for another request")
            return await asyncio.shield(known[1])
        doing = asyncio.ensure_future(do())
        self._known[key] = (digest, doing)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        try:
            response = await asyncio.shield(doing)
        except BaseException:
            self._known.pop(key, None)
            raise
        if response.status_code >= 500:
            # It may work next time, and should be tried.
            self._known.pop(key, None)
        return response
