"""Topics: the list, one topic's partitions, configs and objects, and the forms that change them."""

from urllib.parse import quote

from headrace.admin.console.views import Asking, View, go_to
from headrace.errors import Invalid


async def index(page: Asking) -> View:
    found = await page.ask("ListTopics", internal=page.query.get("internal") == "on", **page.paging())
    return View("topics.html", title="Topics", found=found)


async def create(page: Asking) -> View:
    pairs = [line.partition("=") for line in page.form.get("config", "").splitlines() if line.strip()]
    if wrong := next((pair for pair in pairs if not pair[1]), None):
        raise Invalid(f"{wrong[0]}: expected KEY=VALUE")
    created = await page.ask(
        "CreateTopic",
        name=page.form.get("name", "").strip(),
        partitions=_whole(page.form.get("partitions", "1"), "partitions"),
        config={name.strip(): value.strip() for name, _, value in pairs},
    )
    return go_to(f"topics/{quote(created.name, safe='')}", f"Topic {created.name} created.")


async def partitions(page: Asking) -> View:
    name = page.names["name"]
    found = await page.ask("ListPartitions", name=name, **page.paging())
    topic = await page.ask("DescribeTopic", name=name)
    return View("partitions.html", title=name, topic=topic, found=found, tab="partitions")


async def grow(page: Asking) -> View:
    name = page.names["name"]
    topic = await page.ask("GrowTopic", name=name, count=_whole(page.form.get("count", ""), "count"))
    return go_to(f"topics/{quote(name, safe='')}/partitions", f"{name} has {topic.partitions} partitions now.")


async def configs(page: Asking) -> View:
    name = page.names["name"]
    topic = await page.ask("DescribeTopic", name=name)
    found = await page.ask("DescribeTopicConfigs", name=name)
    return View("configs.html", title=name, topic=topic, found=found, tab="configs")


async def alter(page: Asking) -> View:
    """One key at a time, from the state that the form showed."""
    name, key = page.names["name"], page.form.get("key", "")
    is_unset = "unset" in page.form
    await page.ask(
        "UpdateTopicConfig",
        name=name,
        set={} if is_unset else {key: page.form.get("value", "")},
        unset=[key] if is_unset else [],
        if_match=page.form.get("revision", ""),
    )
    note = f"{key} is inherited again." if is_unset else f"{key} is {page.form.get('value', '')} now."
    return go_to(f"topics/{quote(name, safe='')}/configs", note)


async def segments(page: Asking) -> View:
    name = page.names["name"]
    topic = await page.ask("DescribeTopic", name=name)
    found = await page.ask("ListSegments", name=name, partition=page.number("partition"), **page.paging())
    return View("segments.html", title=name, topic=topic, found=found, tab="segments")


async def confirm_delete(page: Asking) -> View:
    topic = await page.ask("DescribeTopic", name=page.names["name"])
    return View("delete_topic.html", title=topic.name, topic=topic, tab="delete")


async def delete(page: Asking) -> View:
    name = page.names["name"]
    if page.form.get("typed", "") != name:
        raise Invalid(f"type {name} to delete it; nothing was deleted")
    done = await page.ask("DeleteTopic", name=name)
    return go_to("topics", done.message)


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"{name}: {text[:20]!r} is not a whole number")
    return int(text)
