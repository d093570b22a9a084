import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import cast

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.support.logs import turn_of_the_loop

from headrace.admin.api.calls import Parts
from headrace.admin.grpc.server import GrpcDoor
from headrace.admin.handlers.metrics import MetricsPage
from headrace.admin.server import AdminDoor
from headrace.admin.session import Health, Node
from headrace.admin.settings import AdminSettings
from headrace.errors import Fault
from headrace.telemetry.metrics import Family, Metrics, counter


@dataclass(slots=True)
class Counted:
    messages_produced_total: int = counter("Records appended.")


class Wellbeing:
    is_ready = True

    def __call__(self) -> Health:
        return Health(is_ready=self.is_ready, broker_id="headrace-1", version="0", uptime_ms=5)


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def wellbeing() -> Wellbeing:
    return Wellbeing()


@pytest.fixture
async def client(counted: Counted, wellbeing: Wellbeing) -> AsyncIterator[httpx.AsyncClient]:
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    metrics = Metrics()
    metrics.register(counted)
    door = AdminDoor(
        AdminSettings(listen="127.0.0.1:0"),
        Node(metrics=metrics, health=wellbeing),
        more=[Route("/console", hello)],
    )
    await door.start()
    host, port = door.address
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client:
        yield client
    await door.stop()


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient, counted: Counted) -> None:
    counted.messages_produced_total = 41
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "headrace_messages_produced_total 41.0" in answer.text


async def test_health_is_503_until_the_node_is_ready(client: httpx.AsyncClient, wellbeing: Wellbeing) -> None:
    wellbeing.is_ready = False
    assert (await client.get("/health")).status_code == 503
    wellbeing.is_ready = True
    answer = await client.get("/health")
    assert answer.status_code == 200
    assert answer.json()["broker_id"] == "headrace-1"


async def test_other_parts_can_add_their_routes(client: httpx.AsyncClient) -> None:
    assert (await client.get("/console")).text == "hello"
    assert (await client.get("/nowhere")).status_code == 404


async def test_a_taken_port_is_named_in_the_error(client: httpx.AsyncClient, wellbeing: Wellbeing) -> None:
    taken = f"127.0.0.1:{client.base_url.port}"
    door = AdminDoor(AdminSettings(listen=taken), Node(metrics=Metrics(), health=wellbeing))
    with pytest.raises(Fault) as raised:
        await door.start()
    way_on = "; is another node running? listen.admin names another address"
    assert str(raised.value) == f"listen.admin: cannot listen on {taken}: Address already in use{way_on}"


async def test_a_taken_port_of_grpc_is_named_in_the_error(client: httpx.AsyncClient) -> None:
    taken = f"127.0.0.1:{client.base_url.port}"
    door = GrpcDoor(taken, cast(Parts, None))
    with pytest.raises(Fault) as raised:
        await door.start()
    await door.stop()
    way_on = "; is another node running? listen.grpc names another address"
    assert str(raised.value) == f"listen.grpc: cannot listen on {taken}: Address already in use{way_on}"


async def test_a_host_nobody_knows_is_named_in_the_error(wellbeing: Wellbeing) -> None:
    door = AdminDoor(AdminSettings(listen="[no host]:1"), Node(metrics=Metrics(), health=wellbeing))
    with pytest.raises(Fault, match=r"^listen\.admin: cannot listen on \[no host\]:1: "):
        await door.start()


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        (AdminSettings(listen="0.0.0.0:0"), "localhost"),
        (AdminSettings(listen="127.0.0.1:0"), "127.0.0.1"),
        (AdminSettings(listen="127.0.0.1:0", advertised="mill.example:80"), "mill.example"),
    ],
)
async def test_others_are_told_an_address_they_can_use(
    settings: AdminSettings, host: str, wellbeing: Wellbeing
) -> None:
    door = AdminDoor(settings, Node(metrics=Metrics(), health=wellbeing))
    await door.start()
    assert door.address[0] == host
    await door.stop()


async def test_a_scrape_of_very_many_numbers_leaves_turns_to_others_and_is_made_once_for_all() -> None:
    metrics = Metrics()
    asked = 0

    def samples() -> Iterator[tuple[tuple[str], float]]:
        nonlocal asked
        asked += 1
        for number in range(3_000):
            yield (str(number),), 1.0

    metrics.register_family(Family(name="lag", sentence="By group.", labels=("group",), samples=samples))
    page = MetricsPage(Node(metrics=metrics, health=Wellbeing()))
    scrapes = [asyncio.create_task(page.handle(cast(Request, None))) for _ in range(5)]
    turns = 0
    while not all(scrape.done() for scrape in scrapes):
        await turn_of_the_loop()
        turns += 1
    assert turns >= 15
    assert asked == 1
    assert {bytes(scrape.result().body).count(b"lag{") for scrape in scrapes} == {3_000}
