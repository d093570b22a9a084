"""The main path of every page in a real browser, hostile names in all of them, 10,000 topics, and a proxy that puts it all below a path."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from starlette.routing import BaseRoute
from tests.support.browser import browser, needs_browser
from tests.support.large_node import TOPICS, large_parts
from tests.support.node import NodeProcess

from headrace.admin.application import Below
from headrace.admin.console.server import Console
from headrace.admin.guard import Guard
from headrace.admin.server import AdminDoor
from headrace.admin.session import Health
from headrace.admin.session import Node as AdminView
from headrace.admin.settings import AdminSettings
from headrace.telemetry.metrics import Metrics

pytestmark = needs_browser

EVIL = "\"><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TOPIC = "shown"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:  # Any: playwright's own types
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def filled(node: NodeProcess) -> NodeProcess:
    """A topic, a group and a user whose names and records try to be script."""
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as api:
        api.post("/topics", json={"name": TOPIC})
        api.post("/users", json={"user": EVIL, "password": "x"})
        api.post("/acls", json={"principal": EVIL, "operation": "read", "name": EVIL})
        api.post("/quotas", json={"user": EVIL, "produce_bytes": 1000})
    producer = Producer({"bootstrap.servers": node.kafka})
    producer.produce(TOPIC, key=EVIL.encode(), value=EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    for number in range(20):
        producer.produce(TOPIC, key=b"k", value=f'{{"n": {number}}}'.encode())
    producer.flush()
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": EVIL, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()
    return node


@contextmanager
def looking(chromium: Any, base_url: str, **options: Any) -> Iterator[Any]:  # Any: playwright's own types
    """A page; whatever it complains of fails the test."""
    context = chromium.new_context(base_url=base_url, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)

    def refuse(dialog: Any) -> None:  # Any: as above
        complaints.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def page(chromium: Any, filled: NodeProcess) -> Iterator[Any]:  # Any: as above
    with looking(chromium, f"http://{filled.endpoints['admin']}") as found:
        yield found


PLACES = [
    "/",
    "/topics",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}?start=oldest",
    f"/topics/{TOPIC}/partitions",
    f"/topics/{TOPIC}/configs",
    f"/topics/{TOPIC}/segments",
    f"/topics/{TOPIC}/0/0",
    f"/topics/{TOPIC}/0/0/trace",
    "/groups",
    f"/groups/{quote(EVIL, safe='')}",
    "/pipelines",
    "/storage",
    "/transactions",
    "/cluster",
    "/security",
    f"/security?who={quote(EVIL)}&verb=read&kind=topic&name=x",
    "/security/users",
    f"/security/users/{quote(EVIL, safe='')}",
    "/security/quotas",
    "/operations",
]


def test_no_page_runs_what_others_wrote_or_scrolls_sideways_on_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 480, "height": 800})
    for path in PLACES:
        page.goto(path)
        assert page.title() != "owned", path
        assert page.locator("main").is_visible(), path
        assert page.locator("main script, main img").count() == 0, path
        assert page.evaluate("document.documentElement.scrollWidth") <= 480, path


def test_a_short_name_is_not_broken_on_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 480, "height": 800})
    page.goto("groups/" + quote(EVIL, safe=""))
    assert page.evaluate("document.querySelector('td.name a').getClientRects().length") == 1


def test_every_page_can_be_read_without_script(chromium: Any, filled: NodeProcess) -> None:
    with looking(chromium, f"http://{filled.endpoints['admin']}", java_script_enabled=False) as page:
        for path in PLACES:
            assert page.goto(path).status == 200
            assert page.locator("main").inner_text().strip(), path


def test_a_person_follows_a_record_from_a_search_to_its_trace(page: Any) -> None:
    page.goto(f"/topics/{TOPIC}?filter=json.n+%3D%3D+7")
    page.get_by_role("button", name="Search the whole topic").click()
    page.get_by_text("done").first.wait_for(timeout=60_000)
    page.locator("table.records tbody a").first.click()
    page.get_by_role("link", name="Trace").click()
    assert page.get_by_text("The WAL had it on disk before it was acknowledged.").is_visible()


def test_a_person_resets_a_group_after_a_preview(page: Any) -> None:
    page.goto(f"/groups/{quote(EVIL, safe='')}")
    page.locator("select[name=target]").select_option("earliest")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Move 1 offsets").click()
    page.get_by_role("status").get_by_text("1 offsets of").wait_for()
    assert page.title() != "owned"


def test_a_person_changes_a_config_and_adds_a_partition(page: Any) -> None:
    page.goto("/topics")
    page.get_by_text("New topic").click()
    page.get_by_label("Name", exact=True).fill("altered-here")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Partitions").click()
    page.get_by_text("Add partitions").click()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("status").get_by_text("has 2 partitions now").wait_for()


def test_a_person_makes_a_user_with_a_right_and_a_quota(page: Any) -> None:
    page.goto("/security/users")
    form = page.locator("form", has=page.locator("input[name=again]"))
    page.locator("details", has=page.locator("input[name=again]")).locator("summary").click()
    form.locator("input[name=user]").fill("carol")
    form.locator("input[name=password]").fill("long enough")
    form.locator("input[name=again]").fill("long enough")
    form.get_by_role("button").click()
    page.get_by_role("status").get_by_text("User carol created.").wait_for()


def test_storage_is_verified_by_a_button(page: Any) -> None:
    page.goto("/storage")
    page.get_by_role("button", name="Verify every byte").click()
    page.get_by_role("status").get_by_text("is being read and checked").wait_for()
    page.get_by_text("done").first.wait_for(timeout=60_000)


class _Proxy(BaseHTTPRequestHandler):
    """Everything below /mill/ goes to the node, without that part."""

    node = ""

    def _pass_on(self) -> None:
        if not self.path.startswith("/mill/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        connection = HTTPConnection(self.node, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path.removeprefix("/mill"), body, headers)
        answer = connection.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        connection.close()

    do_GET = do_POST = _pass_on

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_behind_a_proxy_and_below_a_path_pages_links_and_forms_work(chromium: Any, filled: NodeProcess) -> None:
    handler = type("Proxy", (_Proxy,), {"node": filled.endpoints["admin"]})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{proxy.server_port}/mill/"
        with looking(chromium, base) as page:
            page.goto(base)
            page.get_by_role("link", name="Topics", exact=True).click()
            page.get_by_role("link", name=TOPIC).click()
            page.get_by_role("link", name="Configs").click()
            page.get_by_role("link", name="Groups", exact=True).click()
            assert page.url == f"{base}groups"
            page.goto(f"{base}topics")
            page.get_by_text("New topic").click()
            page.get_by_label("Name", exact=True).fill("made-below-a-path")
            page.get_by_role("button", name="Create").click()
            page.get_by_role("status").get_by_text("created").wait_for()
            assert page.url.startswith(f"{base}topics/made-below-a-path")
            assert page.evaluate("getComputedStyle(document.querySelector('header.top')).display") == "flex"
    finally:
        proxy.shutdown()
        proxy.server_close()


@contextmanager
def large_console() -> Iterator[str]:
    """The console of a node with 10,000 topics, in a thread of its own."""
    health = Health(is_ready=True, broker_id="b1", version="0", uptime_ms=1)
    routes: list[BaseRoute] = [Below("", Console(large_parts(), Guard(())))]
    door = AdminDoor(
        AdminSettings(listen="127.0.0.1:0"), AdminView(metrics=Metrics(), health=lambda: health), more=routes
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(door.start(), loop).result(60)
    try:
        yield "http://{}:{}".format(*door.address)
    finally:
        asyncio.run_coroutine_threadsafe(door.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def test_ten_thousand_topics_are_found_sorted_and_paged(chromium: Any) -> None:
    with large_console() as base, looking(chromium, base) as page:
        page.goto("/topics")
        shown = page.locator(".pager").inner_text()
        assert "".join(filter(str.isdigit, shown)) == f"100{TOPICS + 1}"
        page.keyboard.press("n")
        page.get_by_role("link", name="topic-00100").wait_for()
        page.goto("/topics?order_by=partitions+desc")
        assert page.locator("tbody tr td.name").first.inner_text() == "wide"
        page.keyboard.press("/")
        page.keyboard.type("09999")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="topic-09999").wait_for()
        assert page.locator("tbody tr").count() == 1
        page.goto("/topics/wide/partitions")
        assert page.locator("tbody tr").count() == 100
