"""What a page is made of: where it is found, who asks, and what it shows."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from starlette.responses import Response

from headrace.admin.api.asking import ask_by_name
from headrace.admin.api.calls import Parts
from headrace.admin.rights import Principal
from headrace.broker.slices import Turns
from headrace.errors import Invalid


class View:
    """A template and what it shows; or, after a change, where to go on and what to say there."""

    def __init__(self, template: str, *, title: str, **context: Any) -> None:  # Any: whatever the template shows
        self.template = template
        self.context = {"title": title, **context}
        self.goes_to: str | None = None
        self.note = ""


def go_to(path: str, note: str) -> View:
    """`path` from the console's first page; names in it are quoted already."""
    view = View("", title="")
    view.goes_to, view.note = path, note
    return view


def milliseconds(text: str) -> int:
    """Of a time in UTC, as a person writes it."""
    try:
        return max(0, int(datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{text[:40]!r} is no time: 2026-01-31T08:00, in UTC") from error


class Asking:
    """A page's way to the API, as whoever looks at it."""

    def __init__(self, parts: Parts, principal: Principal, names: Mapping[str, str], query: dict[str, str]) -> None:
        self._parts = parts
        self.principal = principal
        self.names = names
        self.query = query
        self.form: dict[str, str] = {}
        self._turns = Turns()

    async def ask(self, route: str, /, **fields: Any) -> Any:  # Any: the route's own types
        return await ask_by_name(route, fields, self.principal, self._parts, self._turns)

    @property
    def now_ms(self) -> int:
        return self._parts.broker.clock.now_ms()

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number of the query; what is none counts as not given."""
        text = self.query.get(name, "").strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else default

    def paging(self) -> dict[str, Any]:  # Any: what lists take
        given = {name: self.query[name] for name in ("filter", "order_by", "page_token") if self.query.get(name)}
        return {**given, "page_size": min(max(self.number("page_size", 100) or 100, 1), 1000)}


Shown: TypeAlias = View | Response


@dataclass(frozen=True, slots=True)
class Page:
    method: str
    path: str
    show: Callable[[Asking], Awaitable[Shown]]
