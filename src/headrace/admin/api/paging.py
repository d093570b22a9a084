"""Lists in pages: `filter`, `order_by`, `page_size`, `page_token`, the same for every list.

A token holds the rank of the last row in the chosen order, not a number of rows: rows that come or go meanwhile neither repeat
nor hide others.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from headrace.broker.slices import Turns
from headrace.errors import Invalid

T = TypeVar("T")

Rank: TypeAlias = tuple[Any, str]  # Any: a number or text, one kind per order
"""Of a row in its list: what it is sorted by, and its name."""

_UNSORTED_MAX: Final = 256
"""Rows that gather before they are sorted into a page: a sort holds the interpreter from its first comparison to its last, in a
thread as well, and these few take a fraction of a millisecond."""


class PageRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: Annotated[str, Meta(max_length=500)] = ""
    """Only rows whose name contains this, in capitals or not."""
    order_by: Annotated[str, Meta(max_length=100)] = ""
    """A field of the rows, with ` desc` behind it for the greatest first. By name unless given."""
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    page_token: Annotated[str, Meta(max_length=2000)] = ""
    """`next_page_token` of the page before; the other parameters must be the same."""


class Page(Generic[T]):
    def __init__(self, items: list[T], next_token: str, total: int) -> None:
        self.items = items
        self.next_token = next_token
        self.total = total


class _First(Generic[T]):
    """The first so many rows of an order, of however many it is shown."""

    def __init__(self, count: int, *, is_descending: bool) -> None:
        self._count = count
        self._is_descending = is_descending
        self._rows: list[tuple[Rank, T]] = []
        self._sorted_count = 0

    def add(self, rank: Rank, item: T) -> None:
        self._rows.append((rank, item))
        if len(self._rows) - self._sorted_count >= _UNSORTED_MAX:
            self.take()

    def take(self) -> list[tuple[Rank, T]]:
        self._rows.sort(key=itemgetter(0), reverse=self._is_descending)
        del self._rows[self._count :]
        self._sorted_count = len(self._rows)
        return self._rows


async def page_of(
    items: Iterable[T],
    request: PageRequest,
    *,
    turns: Turns,
    name: Callable[[T], str],
    orders: Mapping[str, Callable[[T], Any]],  # Any: numbers or text, one kind per order
) -> Page[T]:
    """The page that `request` asks for. `orders` has a key function for each field that rows can be sorted by."""
    field, _, direction = request.order_by.partition(" ")
    if direction not in ("", "asc", "desc") or (field and field not in orders and field != "name"):
        raise Invalid(f"order_by: {request.order_by!r}; there are name, {', '.join(orders)}, each with or without desc")
    key = orders.get(field)
    is_descending = direction == "desc"
    wanted = request.filter.casefold()
    last = _read_token(request) if request.page_token else None
    total = 0
    # One more than the page has: it tells whether another page follows.
    first: _First[T] = _First(request.page_size + 1, is_descending=is_descending)
    async for chunk in turns.chunks(items):
        for item in chunk:
            label = name(item)
            if wanted and wanted not in label.casefold():
                continue
            total += 1
            rank = (label if key is None else key(item), label)
            if last is None or _is_behind(rank, last, is_descending=is_descending):
                first.add(rank, item)
    rows = first.take()
    page = rows[: request.page_size]
    token = _write_token(request, page[-1][0]) if len(rows) > len(page) else ""
    return Page([item for _, item in page], token, total)


def _is_behind(rank: Rank, last: Rank, *, is_descending: bool) -> bool:
    if type(rank[0]) is not type(last[0]):
        raise Invalid("page_token: not one of this list")
    return rank < last if is_descending else rank > last


def _write_token(request: PageRequest, last: Rank) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((request.order_by, request.filter, *last))).decode()


def _read_token(request: PageRequest) -> Rank:
    try:
        data = base64.b64decode(request.page_token.encode(), altchars=b"-_", validate=True)
        order_by, chosen, key, name = msgspec.json.decode(data, type=tuple[str, str, int | float | str, str])
    except (ValueError, msgspec.DecodeError, UnicodeError) as error:
        raise Invalid("page_token: not one that this list has given") from error
    if (order_by, chosen) != (request.order_by, request.filter):
        raise Invalid("page_token: belongs to another filter or order")
    return key, name
