"""Pipelines: all of them, one with its tables and dead letters, and the forms that steer them."""

from urllib.parse import quote

from headrace.admin.console.views import Asking, View, go_to, milliseconds


async def index(page: Asking) -> View:
    return View("pipelines.html", title="Pipelines", found=await page.ask("ListPipelines"))


async def one(page: Asking) -> View:
    """With `tables` in the query, also what stands in its tables, which takes a second or two."""
    name = page.names["pipeline"]
    row = await page.ask("DescribePipeline", pipeline=name)
    is_looked = page.query.get("tables") == "on"
    tables = (await page.ask("DescribeTables", pipeline=name)).tables if is_looked else None
    return View("pipeline.html", title=name, row=row, tables=tables)


async def start(page: Asking) -> View:
    return go_to("pipelines", (await page.ask("StartPipelines")).message.capitalize() + ".")


async def stop(page: Asking) -> View:
    return go_to("pipelines", (await page.ask("StopPipelines")).message.capitalize() + ".")


async def replay(page: Asking) -> View:
    name = page.names["pipeline"]
    operation = await page.ask("ReplayDeadLetters", pipeline=name)
    return go_to(f"operations/{quote(operation.id, safe='')}", f"Dead letters of {name} are judged again.")


async def backfill(page: Asking) -> View:
    name = page.names["pipeline"]
    times = {
        field: milliseconds(text)
        for field, text in (("from_ms", page.form.get("from", "")), ("to_ms", page.form.get("to", "")))
        if text.strip()
    }
    operation = await page.ask("BackfillPipeline", pipeline=name, **times)
    return go_to(f"operations/{quote(operation.id, safe='')}", f"{name} lands what its table does not have yet.")
