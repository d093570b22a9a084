"""The console in a real browser: main paths, live parts, keys, hostile records, a narrow screen, no script."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.browser import browser, needs_browser
from tests.support.node import NodeProcess

pytestmark = needs_browser

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:  # Any: playwright's own types
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def topic(node: NodeProcess) -> str:
    httpx.post(f"http://{node.endpoints['admin']}/api/v1/topics", json={"name": "browsed"})
    producer = Producer({"bootstrap.servers": node.kafka})
    producer.produce("browsed", key=EVIL.encode(), value=EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    for number in range(60):
        producer.produce("browsed", key=b"k", value=f'{{"n": {number}}}'.encode())
    producer.flush()
    return "browsed"


@pytest.fixture
def page(chromium: Any, node: NodeProcess) -> Iterator[Any]:  # Any: as above
    context = chromium.new_context(base_url=f"http://{node.endpoints['admin']}")
    found = context.new_page()
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)

    def refuse(dialog: Any) -> None:  # Any: as above
        complaints.append(dialog.message)
        dialog.dismiss()

    found.on("dialog", refuse)
    yield found
    assert complaints == []
    context.close()


def test_records_that_try_to_be_script_are_text(page: Any, topic: str) -> None:
    for path in (f"/topics/{topic}?start=oldest", f"/topics/{topic}/0/0"):
        page.goto(path)
        assert "owned" not in page.title()
        assert page.get_by_text("<script>document.title='owned'</script>").first.is_visible()


def test_a_person_finds_filters_pages_and_opens_a_record(page: Any, topic: str) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("brow")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="browsed").click()
    page.get_by_label("From").select_option("oldest")
    page.get_by_label("Partition").first.fill("0")
    page.get_by_label("Filter").fill("json.n >= 50")
    page.get_by_role("button", name="Show").click()
    assert page.locator("table.records tbody tr").count() == 10
    page.goto(f"/topics/{topic}?start=offset&offset=10&partition=0&limit=20")
    page.keyboard.press("n")
    page.wait_for_url("**offset=30**")
    page.locator("table.records tbody a").first.click()
    assert page.get_by_role("heading", name="Partition 0, offset 30").is_visible()


def test_following_shows_records_as_they_come(page: Any, topic: str, node: NodeProcess) -> None:
    page.goto(f"/topics/{topic}")
    page.get_by_role("button", name="Follow").click()
    httpx.post(
        f"http://{node.endpoints['admin']}/api/v1/topics/{topic}/records",
        json={"value": {"data": "just now"}, "partition": 0},
    )
    page.get_by_text("just now").first.wait_for(timeout=60_000)


def test_a_topic_is_made_and_deleted_by_typing_its_name(page: Any) -> None:
    page.goto("/topics")
    page.get_by_text("New topic").click()
    page.get_by_label("Name", exact=True).fill("made-here")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("status").get_by_text("created").wait_for()
    page.get_by_role("link", name="Delete").click()
    page.get_by_label("Type").fill("made-here")
    page.get_by_role("button", name="Delete the topic").click()
    page.get_by_role("status").get_by_text("deleted").wait_for()


def test_dark_and_light_are_remembered(page: Any) -> None:
    page.goto("/")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.goto("/topics")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/browsed", "/groups", "/storage", "/cluster"])
def test_a_narrow_screen_does_not_scroll_sideways(page: Any, topic: str, path: str) -> None:
    page.set_viewport_size({"width": 480, "height": 800})
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 480


def test_without_script_everything_can_be_read(chromium: Any, node: NodeProcess, topic: str) -> None:
    context = chromium.new_context(base_url=f"http://{node.endpoints['admin']}", java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    assert page.get_by_text("All is well.").is_visible()
    page.goto(f"/topics/{topic}?filter=json.n+%3D%3D+7")
    assert page.locator("table.records tbody tr").count() == 1
    context.close()


def test_a_node_that_is_gone_leaves_the_page_readable(chromium: Any, node: NodeProcess, topic: str) -> None:
    context = chromium.new_context(base_url=f"http://{node.endpoints['admin']}")
    page = context.new_page()
    page.clock.install()
    page.goto("/groups")
    context.set_offline(True)
    # The page asks again after five seconds, and gets no answer.
    page.clock.run_for(12_000)
    assert page.get_by_role("heading", name="Groups").is_visible()
    context.close()


def test_every_control_has_a_name(page: Any, topic: str) -> None:
    for path in ("/", "/topics", f"/topics/{topic}", f"/topics/{topic}/configs", "/groups", "/storage"):
        page.goto(path)
        nameless = page.evaluate(
            """[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')].filter(
            each => !(each.labels?.length || each.ariaLabel || each.textContent.trim() || each.title)).map(e => e.outerHTML)"""
        )
        assert nameless == [], path
