"""Consumer groups: the list, one with its members and lag, a reset with its preview, deletion."""

from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from headrace.admin.console.charts import chart
from headrace.admin.console.views import Asking, View, go_to, milliseconds
from headrace.broker.groups.lag import LagPoint
from headrace.broker.groups.reset_target import Target
from headrace.errors import HeadraceError, Invalid
from headrace.telemetry.history import Points


async def index(page: Asking) -> View:
    return View("groups.html", title="Groups", found=await page.ask("ListGroups", **page.paging()))


async def one(page: Asking) -> View:
    """With `target` in the query, also what a reset would do."""
    name = page.names["group"]
    group = await page.ask("DescribeGroup", group=name)
    plan, problem = None, ""
    if page.query.get("target"):
        try:
            plan = await page.ask("ResetOffset", group=name, dry_run=True, **_reset(page.query))
        except HeadraceError as error:
            problem = str(error)
    topics: dict[str, int] = {}
    for row in group.partitions:
        topics[row.topic] = topics.get(row.topic, 0) + (row.lag or 0)
    return View(
        "group.html",
        title=name,
        group=group,
        plan=plan,
        problem=problem,
        topics=topics,
        trend=_trend(group.trend),
    )


def _trend(points: list[LagPoint]) -> Markup | None:
    if len(points) < 2:
        return None
    lag = Points(
        name="lag",
        sentence="lag",
        unit="records",
        times_ms=[each.time_ms for each in points],
        values=[float(each.lag) for each in points],
    )
    first, last = points[0].time_ms, points[-1].time_ms
    return chart([lag], title="Lag", per_second=False, from_ms=first, to_ms=last)


async def reset(page: Asking) -> View:
    name = page.names["group"]
    done = await page.ask("ResetOffset", group=name, **_reset(page.form))
    return go_to(f"groups/{quote(name, safe='')}", f"{len(done.moves)} offsets of {name} moved.")


def _reset(given: dict[str, str]) -> dict[str, Any]:  # Any: fields of ResetOffset
    try:
        target = Target(given.get("target", ""))
    except ValueError as error:
        raise Invalid("choose where to go") from error
    text = given.get("value", "").strip()
    if target is Target.TIME and not text.isdigit():
        value = milliseconds(text)
    elif target in (Target.OFFSET, Target.SHIFT, Target.TIME):
        if not (text.removeprefix("-").isdigit() and text.isascii() and len(text) < 19):
            raise Invalid(f"{text[:40]!r} is not a whole number")
        value = int(text)
    else:
        value = 0
    topic = given.get("topic", "")
    return {"target": target.value, "value": value, "topics": [topic] if topic else []}


async def confirm_delete(page: Asking) -> View:
    group = await page.ask("DescribeGroup", group=page.names["group"])
    return View("delete_group.html", title=group.group, group=group)


async def delete(page: Asking) -> View:
    name = page.names["group"]
    if page.form.get("typed", "") != name:
        raise Invalid(f"type {name} to delete it; nothing was deleted")
    done = await page.ask("DeleteGroup", group=name)
    return go_to("groups", done.message)
