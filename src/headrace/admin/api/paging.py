"""Lists in pages: `filter`, `order_by`, `page_size`, `page_token`, the same for every list.

A token holds the place of the last row in the chosen order, not a number of rows: rows that come or go meanwhile neither repeat
nor hide others.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from headrace.broker.slices import gently
from headrace.errors import Invalid

T = TypeVar("T")

_SORT_BESIDE_LOOP = 2000
"""Rows: sorting more than these would take the loop for a millisecond."""


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


async def page_of(
    items: Iterable[T],
    request: PageRequest,
    *,
    name: Callable[[T], str],
    orders: Mapping[str, Callable[[T], Any]],  # Any: numbers or text, one kind per order
) -> Page[T]:
    """The page that `request` asks for. `orders` has a key function for each field that rows can be sorted by."""
    field, _, direction = request.order_by.partition(" ")
    if direction not in ("", "asc", "desc") or (field and field not in orders and field != "name"):
        raise Invalid(f"order_by: {request.order_by!r}; there are name, {', '.join(orders)}, each with or without desc")
    key = orders.get(field)
    wanted = request.filter.casefold()
    keyed: list[tuple[Any, str, T]] = []
    async for item in gently(items):
        label = name(item)
        if wanted in label.casefold():
            keyed.append((label if key is None else key(item), label, item))
    is_descending = direction == "desc"

    def cut() -> tuple[list[tuple[Any, str, T]], bool]:
        rows = sorted(keyed, key=lambda row: row[:2], reverse=is_descending)
        if request.page_token:
            last = _read_token(request)
            if rows and type(last[0]) is not type(rows[0][0]):
                raise Invalid("page_token: not one of this list")
            rows = [row for row in rows if (row[:2] < last if is_descending else row[:2] > last)]
        return rows[: request.page_size], len(rows) > request.page_size

    rows, is_more = await asyncio.to_thread(cut) if len(keyed) > _SORT_BESIDE_LOOP else cut()
    token = _write_token(request, rows[-1][:2]) if is_more else ""
    return Page([row[2] for row in rows], token, len(keyed))


def _write_token(request: PageRequest, last: tuple[Any, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((request.order_by, request.filter, *last))).decode()


def _read_token(request: PageRequest) -> tuple[Any, str]:
    try:
        data = base64.b64decode(request.page_token.encode(), altchars=b"-_", validate=True)
        order_by, chosen, key, name = msgspec.json.decode(data, type=tuple[str, str, int | float | str, str])
    except (ValueError, msgspec.DecodeError, UnicodeError) as error:
        raise Invalid("page_token: not one that this list has given") from error
    if (order_by, chosen) != (request.order_by, request.filter):
        raise Invalid("page_token: belongs to another filter or order")
    return key, name
