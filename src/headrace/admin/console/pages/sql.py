"""SQL: a query box, what came of a query, and the queries before it."""

from typing import Final
from urllib.parse import quote

from headrace.admin.api.operations import OperationView
from headrace.admin.api.querying import KIND
from headrace.admin.console.views import Asking, View, go_to
from headrace.errors import NotFound

_SHOWN_MAX: Final = 1000
"""Rows on a page; more make a browser slow."""


async def index(page: Asking) -> View:
    return await _show(page, None)


async def one(page: Asking) -> View:
    found = await page.ask("DescribeOperation", operation=page.names["operation"])
    if found.kind != KIND:
        raise NotFound("That operation is no query.")
    return await _show(page, found)


async def run(page: Asking) -> View:
    limit = page.form.get("limit", "").strip()
    fields = {"limit": int(limit)} if limit.isascii() and limit.isdigit() and len(limit) < 10 else {}
    operation = await page.ask("RunSql", query=page.form.get("query", "").strip(), **fields)
    return go_to(f"sql/{quote(operation.id, safe='')}", "The query is on its way; Spark takes some seconds to start.")


async def cancel(page: Asking) -> View:
    name = page.names["operation"]
    await page.ask("CancelOperation", operation=name)
    return go_to(f"sql/{quote(name, safe='')}", "Cancelled.")


async def _show(page: Asking, operation: OperationView | None) -> View:
    known = (await page.ask("ListOperations")).operations
    return View(
        "sql.html",
        title="SQL",
        operation=operation,
        asked=operation.target if operation is not None else page.query.get("query", ""),
        shown_max=_SHOWN_MAX,
        limit=page.number("limit", 1000),
        history=[each for each in known if each.kind == KIND],
    )
