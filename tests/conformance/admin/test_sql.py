"""SQL of an administrator over the API and the console, with the real Spark beside a real node: asked, answered, refused, cancelled, killed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.node import NodeProcess, eventually
from tests.support.processes import arguments_of, children_of, descendants_of, jvm_of

EVIL = '<script>alert(1)</script><b a="\'">\x00&amp;'
LARGEST = 2**63 - 1
ENDLESS = "select sum(a.id * b.id) from range(100000000) a, range(100000000) b"
SECONDS_MAX = 300.0
"""Spark starts in ten seconds; where many others want the same two cores it takes ten times as long."""

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """With its pipeline, which is stopped at once: one Spark is enough for two cores."""
    node = NodeProcess(
        tmp_path_factory.mktemp("sql") / "data",
        {"tier.upload.interval.ms": 200, "security.audit.enable": "true"},
        command=("up", "--ephemeral"),
    )
    try:
        node.start()
        data_of(httpx.post(f"{site_of(node)}/api/v1/pipelines/stop", timeout=SECONDS_MAX))
        yield node
    finally:
        if node.process is not None and node.process.poll() is None:
            node.stop()


@pytest.fixture
def site(node: NodeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site_of(node), timeout=60, follow_redirects=True) as client:
        yield client


@pytest.fixture(scope="module")
def orders(node: NodeProcess) -> str:
    with httpx.Client(base_url=f"{site_of(node)}/api/v1", timeout=60) as api:
        data_of(api.post("/topics", json={"name": "orders", "partitions": 1}))
        for value in (EVIL, f'{{"n": {LARGEST}}}'):
            data_of(api.post("/topics/orders/records", json={"value": {"data": value}}))
    return "orders"


def site_of(node: NodeProcess) -> str:
    return f"http://{node.endpoints['admin']}"


def data_of(answer: httpx.Response) -> Any:  # Any: JSON
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def ended(api: httpx.Client, operation: Any) -> Any:  # Any: as above
    found: list[Any] = []  # Any: as above

    def is_ended() -> bool:
        found[:] = [data_of(api.get(f"/operations/{operation['id']}"))]
        return bool(found[0]["state"] != "running")

    eventually(is_ended, SECONDS_MAX, "the query does not end")
    return found[0]


def ask(api: httpx.Client, query: str, **fields: Any) -> Any:  # Any: as above
    return ended(api, data_of(api.post("/sql", json={"query": query, **fields})))


def worker_of(node: NodeProcess) -> int | None:
    return next((each for each in children_of(node.pid) if "headrace.pipeline.sql.worker" in arguments_of(each)), None)


def is_alive(process_id: int) -> bool:
    try:
        return (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def busy_processes(node: NodeProcess, api: httpx.Client) -> tuple[Any, list[int]]:
    """An endless query, and all processes that work on it."""
    operation = data_of(api.post("/sql", json={"query": ENDLESS}))
    eventually(lambda: (worker := worker_of(node)) is not None and jvm_of(worker) is not None, SECONDS_MAX, "no JVM")
    worker = worker_of(node)
    assert worker is not None
    return operation, [worker, *descendants_of(worker)]


def test_records_are_queried_and_nothing_of_them_is_lost(api: httpx.Client, orders: str) -> None:
    found = ask(api, "select offset, value, get_json_object(value, '$.n') as n from `topic.orders` order by offset")
    assert found["state"] == "done", found
    result = found["result"]
    assert result["rows"] == [["0", EVIL, None], ["1", f'{{"n": {LARGEST}}}', str(LARGEST)]]
    assert [each["type"] for each in result["columns"]] == ["bigint", "string", "string"]
    assert (result["cut"], found["done"], found["unit"]) == ("", 2, "rows")
    cut = ask(api, "select * from `topic.orders`", limit=1)["result"]
    assert (len(cut["rows"]), "more rows" in cut["cut"]) == (1, True)


def test_the_audit_has_the_query_and_who_asked(api: httpx.Client, orders: str) -> None:
    query = "select 'for the audit'"
    author = ask(api, query)["author"]
    path = "/topics/__headrace_audit/records"
    noted = [each["value"]["data"] for each in data_of(api.get(path, params={"filter": '"RunSql"'}))["records"]]
    assert any(query in event and author.removeprefix("User:") in event for event in noted), noted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select * from text.`/etc/passwd`", "there is no text"),
        ("select reflect('java.lang.System', 'getenv', 'PATH')", "reflect"),
        ("insert into `topic.orders` values (1)", "only read"),
        ("set spark.sql.runSQLOnFiles=true", "only read"),
        ("select nothing from `topic.orders`", "nothing"),
        ("select * from `bronze.nowhere`", "no table bronze.nowhere"),
        ("selekt 1", "selekt"),
    ],
)
def test_what_is_not_allowed_or_wrong_is_refused_with_a_sentence(
    api: httpx.Client, orders: str, query: str, reason: str
) -> None:
    found = ask(api, query)
    assert (found["state"], found["result"]) == ("failed", None)
    assert reason in found["message"]


def test_variables_of_the_process_are_not_filled_in(api: httpx.Client, orders: str) -> None:
    assert ask(api, "select '${env:PATH} ${system:java.home}' as x")["result"]["rows"] == [
        ["${env:PATH} ${system:java.home}"]
    ]


def test_the_page_asks_shows_and_remembers_and_hostile_bytes_are_text(
    site: httpx.Client, api: httpx.Client, orders: str
) -> None:
    start = site.get("/sql")
    token = re.search(r'name="token" value="([0-9a-f]+)"', start.text)
    assert token is not None
    query = "select value as `<b>`, 9007199254740993 as n from `topic.orders` -- </textarea><i>"
    page = site.post("/sql", data={"token": token[1], "query": query, "limit": "10"})
    assert page.status_code == 200, page.text
    ended(api, {"id": page.url.path.rpartition("/")[2]})
    shown = site.get(page.url.path).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "9007199254740993" in shown
    for markup in ("<script>alert", "<b a=", "</textarea><i>", '<th scope="col" title="string"><b>'):
        assert markup not in shown
    history = site.get("/sql").text
    assert f'href="sql/{page.url.path.rpartition("/")[2]}"' in history
    assert 'href="sql"' in site.get("/pipelines").text


def test_whoever_cancels_ends_the_jvm(node: NodeProcess, site: httpx.Client, api: httpx.Client) -> None:
    operation, processes = busy_processes(node, api)
    token = re.search(r'name="token" value="([0-9a-f]+)"', site.get(f"/sql/{operation['id']}").text)
    assert token is not None
    page = site.post(f"/sql/{operation['id']}/cancel", data={"token": token[1]})
    assert page.status_code == 200
    assert data_of(api.get(f"/operations/{operation['id']}"))["state"] == "cancelled"
    eventually(lambda: not any(map(is_alive, processes)), 20, "something of Spark is left")
    assert not (node.data_dir / "pipeline" / "sql").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [True, False])
def test_nothing_outlives_the_node(tmp_path: Path, *, is_killed: bool) -> None:
    node = NodeProcess(tmp_path / "data", command=("up", "--ephemeral")).start()
    try:
        with httpx.Client(base_url=f"{site_of(node)}/api/v1", timeout=SECONDS_MAX) as api:
            data_of(api.post("/pipelines/stop"))
            _, processes = busy_processes(node, api)
        if is_killed:
            node.kill()
        else:
            assert node.stop() == 0
        eventually(lambda: not any(map(is_alive, processes)), 20, "something of Spark is left")
        eventually(lambda: not (node.data_dir / "pipeline" / "sql").exists(), 20, "its files are left")
    finally:
        if node.process is not None and node.process.poll() is None:
            node.kill()


def test_without_java_or_without_the_pipeline_it_is_said(tmp_path: Path) -> None:
    nowhere = NodeProcess(tmp_path / "a", command=("up", "--ephemeral"), environment={"PATH": "", "JAVA_HOME": ""})
    without = NodeProcess(tmp_path / "b")
    for node, reason in ((nowhere, "Java 17"), (without, "pipeline.enable")):
        try:
            node.start()
            answer = httpx.post(f"{site_of(node)}/api/v1/sql", json={"query": "select 1"})
            assert (answer.status_code, reason in answer.json()["error"]["message"]) == (409, True), answer.text
        finally:
            node.kill()
