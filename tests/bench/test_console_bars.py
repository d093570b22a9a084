"""What the console costs, on a real node: pages, first paint, a producer beside people who browse, a search of a whole topic.

Printed with `-s`; `make console-bars` runs it. Where two things are compared they take turns, so that a noisy minute hurts both. Beside
the time on the clock stands the CPU of the node and all it starts, which depends less on what else the machine does.
"""

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.browser import browser, needs_browser
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.processes import cpu_seconds

import headrace.admin.console

pytestmark = pytest.mark.long

TOPICS, PARTITIONS, GROUPS = 100, 100, 1_000
SEARCHED_MIB = int(os.environ.get("HEADRACE_TEST_MIB", "512"))
PAGE_TIMES, SEARCH_TIMES = 11, 3
ROUNDS = 4
WINDOW_S = 6.0
PEOPLE = 10
RATE = 200
PAGES = ["/", "/topics", "/topics?order_by=bucket_bytes+desc", "/topics/wide-00/partitions", "/topics/wide-00", "/groups",
         "/groups?order_by=lag+desc", "/groups/group-0001", "/storage", "/cluster", "/security", "/operations"]  # fmt: skip


def say(what: str, figure: str) -> None:
    print(f"{what:60s} {figure}")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """10,000 partitions, 1,000 groups, and a topic to search."""
    with running_node(tmp_path_factory.mktemp("bars") / "data", {"tier.upload.interval.ms": 500}) as started:
        with httpx.Client(base_url=f"http://{started.endpoints['admin']}/api/v1", timeout=120) as api:
            for number in range(TOPICS):
                api.post("/topics", json={"name": f"wide-{number:02}", "partitions": PARTITIONS}).raise_for_status()
            for name in ("searched", "steady"):
                api.post("/topics", json={"name": name, "partitions": 2}).raise_for_status()
            for number in range(GROUPS):
                body = {"target": "earliest", "topics": [f"wide-{number % TOPICS:02}"]}
                api.post(f"/groups/group-{number:04}/reset", json=body).raise_for_status()
            _fill(started, api)
        yield started


def _fill(node: NodeProcess, api: httpx.Client) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 20, "batch.size": 1 << 20,
                         "queue.buffering.max.kbytes": 1 << 18})  # fmt: skip
    size, number = 0, 0
    while size < SEARCHED_MIB << 20:
        value = json.dumps(
            {"n": number, "user": f"user-{number % 1000}", "text": "some words of a person " * 8}
        ).encode()
        while True:
            try:
                producer.produce("searched", key=b"key-%d" % number, value=value)
                break
            except BufferError:
                producer.poll(0.1)
        size += len(value)
        number += 1
    assert producer.flush(300) == 0

    def is_uploaded() -> bool:
        found = api.get("/topics/searched").json()["data"]["sizes"]
        return bool(found["exposed_bytes"] == 0)

    eventually(is_uploaded, 300, "not uploaded")


def test_pages(node: NodeProcess) -> None:
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}", timeout=60) as client:
        for path in PAGES:
            client.get(path).raise_for_status()
            taken, worked = [], cpu_seconds(node.pid)
            for _ in range(PAGE_TIMES):
                began = time.perf_counter()
                client.get(path).raise_for_status()
                taken.append((time.perf_counter() - began) * 1000)
            cpu_ms = (cpu_seconds(node.pid) - worked) * 1000 / PAGE_TIMES
            times = f"median {statistics.median(taken):6.1f} ms, least {min(taken):6.1f} ms"
            say(f"page {path}", f"{times}, CPU {cpu_ms:5.1f} ms")


@needs_browser
def test_first_paint(node: NodeProcess) -> None:
    static = Path(headrace.admin.console.__file__).parent / "static"
    say("script", f"{sum(path.stat().st_size for path in static.glob('*.js'))} bytes")
    with browser() as chromium:
        for path in ("/", "/topics", "/groups"):
            paints = []
            for _ in range(5):
                context = chromium.new_context()
                page = context.new_page()
                page.goto(f"http://{node.endpoints['admin']}{path}")
                paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
                page.wait_for_function(f"{paint} > 0")
                paints.append(page.evaluate(paint))
                context.close()
            say(f"first paint {path}", f"median {statistics.median(paints):6.0f} ms, least {min(paints):6.0f} ms")


def test_search(node: NodeProcess) -> None:
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as api:
        for text in ('key == "key-4711"', 'json.user == "user-7"', "json.n == 4711"):
            speeds, worked = [], cpu_seconds(node.pid)
            for _ in range(SEARCH_TIMES):
                began = time.perf_counter()
                done = _search(api, text)
                speeds.append(SEARCHED_MIB / (time.perf_counter() - began))
                assert done["result"]["is_complete"]
            by_cpu = SEARCHED_MIB * SEARCH_TIMES / (cpu_seconds(node.pid) - worked)
            speed = f"median {statistics.median(speeds):5.0f} MiB/s, best {max(speeds):5.0f}"
            say(f"search {text}", f"{speed}; {by_cpu:5.0f} MiB for a second of CPU")


def _search(api: httpx.Client, text: str) -> Any:  # Any: JSON
    operation = api.post("/topics/searched/search", json={"filter": text}).json()["data"]
    while (found := api.get(f"/operations/{operation['id']}").json()["data"])["state"] == "running":
        time.sleep(0.05)
    return found


def test_a_producer_beside_people(node: NodeProcess) -> None:
    alone, beside = list[float](), list[float]()
    for _ in range(ROUNDS):
        alone += _produce(node)
        with _people(node):
            beside += _produce(node)
    for name, taken in (("alone", alone), ("beside ten who browse and one who searches", beside)):
        say(f"producer {name}", f"p50 {_at(taken, 0.5):5.1f} ms, p99 {_at(taken, 0.99):5.1f} ms of {len(taken)}")
    say("ratio of p99", f"{_at(beside, 0.99) / _at(alone, 0.99):.2f}")


def _at(taken: list[float], share: float) -> float:
    return sorted(taken)[int(len(taken) * share)]


def _produce(node: NodeProcess) -> list[float]:
    """Milliseconds until each record was acknowledged, at a steady rate, from when it was due."""
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 1, "acks": "all"})
    taken: list[float] = []
    begin = time.perf_counter() + 0.5
    for number in range(int(WINDOW_S * RATE)):
        due = begin + number / RATE
        while (left := due - time.perf_counter()) > 0:
            producer.poll(min(left, 0.001))

        def note(error: object, message: object, due: float = due) -> None:
            assert error is None
            taken.append((time.perf_counter() - due) * 1000)

        producer.produce("steady", value=b"x" * 200, on_delivery=note)
    assert producer.flush(60) == 0
    return taken[RATE:]


@contextmanager
def _people(node: NodeProcess) -> Iterator[None]:
    """Each opens a page a second; one searches again and again. In a process of their own: a producer that shared its interpreter with ten
    others would wait for that, and not for the node."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=_browse_and_search, args=(node.endpoints["admin"], ready, stop), daemon=True)
    process.start()
    assert ready.wait(60)
    yield
    stop.set()
    process.join(60)
    assert process.exitcode == 0


def _browse_and_search(address: str, ready: Event, stop: Event) -> None:
    def browse(number: int) -> None:
        with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
            while not stop.is_set():
                client.get(PAGES[number % len(PAGES)]).raise_for_status()
                number += 1
                stop.wait(1)

    def look() -> None:
        with httpx.Client(base_url=f"http://{address}/api/v1", timeout=60) as api:
            while not stop.is_set():
                _search(api, 'json.user == "user-7"')

    with ThreadPoolExecutor(PEOPLE + 1) as threads:
        doing = [threads.submit(browse, number) for number in range(PEOPLE)] + [threads.submit(look)]
        ready.set()
        for each in doing:
            each.result()
