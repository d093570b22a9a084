"""What a store's answer means, by request and HTTP status: the one table, so that every answer has a place.

Three answers say something about the object: 412 to a create-only PUT (it is there), 404 to a GET or HEAD (it is not), 404 to
a DELETE (it is gone already). Everything else, foreseen or not, says only that this request did not succeed: it may be tried
again, and after a PUT or DELETE nobody knows whether it took effect. So a 409 is a conflict with another request that is
under way, as S3 documents it, and no word about what exists; a 404 to a PUT is about the bucket; and a GET that is answered
with 409 or 412 was answered by a store that is confused.
"""

import re
from enum import Enum
from typing import Final

from headrace.errors import AlreadyExists, HeadraceError, ObjectNotFound, StoreUnavailable

_STATUS: Final = re.compile(r"status code: (\d{3})")


class Request(Enum):
    CREATE = "create"
    """A PUT with `If-None-Match: *`, or what the store has in its place."""
    PUT = "put"
    GET = "get"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"


MEANINGS: Final[dict[tuple[Request, int], type[HeadraceError]]] = {
    (Request.CREATE, 412): AlreadyExists,
    (Request.GET, 404): ObjectNotFound,
    (Request.HEAD, 404): ObjectNotFound,
    (Request.DELETE, 404): ObjectNotFound,
}
"""All others are `StoreUnavailable`."""


def meaning_of(request: Request, status: int) -> type[HeadraceError]:
    """The error that an answer other than 2xx stands for."""
    return MEANINGS.get((request, status), StoreUnavailable)


def status_in(text: str) -> int | None:
    """The status that obstore's words name; None when there was no answer, or the store has no HTTP."""
    found = _STATUS.search(text)
    return int(found[1]) if found else None
