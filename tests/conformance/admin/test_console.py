"""The console as HTML: every page, every form, relative links, hostile names, and nothing that needs script to be read."""

import base64
import re
from html.parser import HTMLParser
from urllib.parse import quote, urljoin

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from tests.support.node import NodeProcess
from tests.support.wasm import IDENTITY

EVIL = "<script>alert('x')</script>"
EVIL_BYTES = b"\"><script>alert('x')</script><img src=x onerror=alert(1)>"


class Links(HTMLParser):
    """Every tag, link and inline handler of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.links += [given[name] or "" for name in ("href", "src", "action") if name in given]
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "script" and "src" not in given:
            self.inline.append("script")


@pytest.fixture(scope="module")
def site(node: NodeProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{node.endpoints['admin']}", timeout=60, follow_redirects=True)


@pytest.fixture(scope="module")
def evil_topic(node: NodeProcess, site: httpx.Client) -> str:
    """Records that try to be script in key, value and header, and a group whose name does."""
    site.post("/api/v1/topics", json={"name": "evil"})
    site.post("/api/v1/users", json={"user": EVIL, "password": "x"})
    producer = Producer({"bootstrap.servers": node.kafka})
    producer.produce("evil", key=EVIL_BYTES, value=EVIL_BYTES, headers=[(EVIL, EVIL_BYTES)])
    producer.produce("evil", key=b"json", value=b'{"</script>": "' + EVIL.encode() + b'", "id": 9007199254740993}')
    producer.produce("evil", key=b"bytes", value=bytes(range(256)))
    producer.produce("evil", key=b"gone", value=None)
    producer.flush()
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": EVIL, "auto.offset.reset": "earliest"})
    consumer.subscribe(["evil"])
    while consumer.poll(1) is None:
        pass
    consumer.commit(asynchronous=False)
    consumer.close()
    return "evil"


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
    assert found is not None, page.text
    return found[1]


PAGES = [
    "/",
    "/?minutes=1440",
    "/topics",
    "/topics?order_by=records+desc&internal=on&filter=e",
    "/topics/evil",
    "/topics/evil?start=oldest&partition=0&limit=2",
    "/topics/evil?filter=key+%3D%3D",
    "/topics/evil/partitions",
    "/topics/evil/configs",
    "/topics/evil/segments",
    "/topics/evil/delete",
    "/topics/evil/0/0",
    "/topics/evil/0/1",
    "/topics/evil/0/2",
    "/topics/evil/0/3",
    "/topics/evil/0/0/trace",
    "/topics/evil/0/99/trace",
    "/topics/evil/0/0/trace?tables=on",
    "/groups",
    "/groups?order_by=lag",
    f"/groups/{quote(EVIL, safe='')}",
    f"/groups/{quote(EVIL, safe='')}?target=earliest",
    f"/groups/{quote(EVIL, safe='')}/delete",
    "/transactions",
    "/pipelines",
    "/sql",
    f"/sql?query={quote(EVIL)}",
    "/modules",
    "/storage",
    "/cluster?filter=wal",
    "/security",
    f"/security?who={quote(EVIL)}&verb=read&kind=topic&name={quote(EVIL)}",
    "/security/users",
    "/security/quotas",
    f"/security/users/{quote(EVIL, safe='')}",
    "/operations",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_without_script_and_nothing_in_it_is_markup_of_a_strangers(
    site: httpx.Client, evil_topic: str, path: str
) -> None:
    answer = site.get(path)
    assert answer.status_code == 200, answer.text
    page = Links(answer.text)
    # One script, ours, in a file; the policy would refuse any other, and there is none to refuse.
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == 1
    assert page.inline == []
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    # Nothing is absolute, so that the console works below a path.
    assert not [link for link in page.links if link.startswith(("/", "http", "//", "javascript"))]
    assert answer.headers["cache-control"] == "no-store"


def test_every_link_leads_somewhere_also_below_a_path(site: httpx.Client, evil_topic: str) -> None:
    """Followed from page to page as a browser below `/mill/` would."""
    base = "http://proxy/mill/"
    waiting, seen = [base], set[str]()
    while waiting:
        url = waiting.pop()
        if url in seen or len(seen) > 120:
            continue
        seen.add(url)
        assert url.startswith(base), url
        answer = site.get("/" + url.removeprefix(base))
        # A record that is linked to may be deleted, or not be there yet.
        is_record = re.search(r"/topics/[^/]+/\d+/\d+", url) is not None
        assert answer.status_code == 200 or is_record, f"{url}: {answer.status_code}"
        if answer.headers["content-type"].startswith("text/html"):
            links = [urljoin(url, link) for link in Links(answer.text).links]
            waiting += [link.partition("#")[0] for link in links if "/delete" not in link or link.endswith("/delete")]
            # A form's action is no page of its own.
            actions = (
                "/produce",
                "/tokens",
                "/logout",
                "/end",
                "/revoke",
                "/reset",
                "/verify",
                "/abort",
                "/search",
                "/password",
                "/remove",
                "/assign",
                "/cancel",
                "/resume",
            )
            waiting = [link for link in waiting if not link.endswith(actions)]
    assert len(seen) > 20


def test_names_and_bytes_of_strangers_are_shown_as_text(site: httpx.Client, evil_topic: str) -> None:
    groups = site.get("/groups").text
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in groups
    record = site.get("/topics/evil/0/0").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in record
    assert "9007199254740993" in site.get("/topics/evil/0/1").text
    assert "00 01 02 03" in site.get("/topics/evil/0/2").text
    assert "tombstone" in site.get("/topics/evil/0/3").text


def test_a_download_is_never_shown_by_the_browser(site: httpx.Client, evil_topic: str) -> None:
    answer = site.get("/topics/evil/0/0/value")
    assert answer.content == EVIL_BYTES
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_forms_create_alter_grow_produce_and_delete(site: httpx.Client, name: str) -> None:
    def post(path: str, **fields: str) -> httpx.Response:
        return site.post(path, data={"token": token_in(site.get("/topics")), **fields})

    created = post("/topics", name=name, partitions="2", config="retention.ms=60000\n")
    assert f"Topic {name} created." in created.text
    changed = post(
        f"/topics/{name}/configs",
        key="retention.ms",
        value="70000",
        revision=re.findall(r'name="revision" value="(\w+)"', site.get(f"/topics/{name}/configs").text)[0],
    )
    assert "retention.ms is 70000 now." in changed.text
    stale = post(f"/topics/{name}/configs", key="retention.ms", value="1", revision="0123456789abcdef")
    assert stale.status_code == 412
    assert "has 3 partitions now." in post(f"/topics/{name}/partitions", count="3").text
    produced = post(f"/topics/{name}/produce", key="k", value='{"a":\r\n1}', partition="2", headers="h: v")
    assert "is durable in partition 2" in produced.text
    assert "h" in site.get(f"/topics/{name}/2/0").text
    wrong = post(f"/topics/{name}/delete", typed="something else")
    assert wrong.status_code == 400
    assert site.get(f"/topics/{name}").status_code == 200
    assert "deleted" in post(f"/topics/{name}/delete", typed=name).text
    assert site.get(f"/topics/{name}").status_code == 404


def test_a_module_is_given_to_a_topic_taken_back_and_removed(site: httpx.Client, name: str) -> None:
    def post(path: str, **fields: str) -> httpx.Response:
        return site.post(path, data={"token": token_in(site.get("/topics")), **fields})

    site.post("/api/v1/topics", json={"name": name}).raise_for_status()
    code = base64.b64encode(IDENTITY).decode()
    uploaded = site.post("/api/v1/wasm/modules", json={"name": "same", "content": code}).json()
    module = uploaded["data"]["module"]["id"]
    assert f"goes through {module}" in post("/modules/assign", topic=name, module=module).text
    assert f"/topics/{name}/configs" in site.get("/modules").text.replace('href="topics', 'href="/topics')
    assert site.get(f"/api/v1/wasm/modules/{module}").json()["data"]["module"]["topics"] == [name]
    # What a topic has cannot be removed.
    assert post(f"/modules/{module}/remove").status_code == 409
    assert f"{name} has no module any more" in post("/modules/assign", topic=name, module="").text
    assert "removed" in post(f"/modules/{module}/remove").text
    assert module not in site.get("/modules?filter=same").text


def test_a_form_without_our_token_or_from_elsewhere_changes_nothing(site: httpx.Client, name: str) -> None:
    site.get("/topics")
    for token in ("", "0" * 64):
        answer = site.post("/topics", data={"name": name, "partitions": "1", "token": token})
        assert answer.status_code == 403
    token = token_in(site.get("/topics"))
    fields = {"name": name, "partitions": "1", "token": token}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
        assert site.post("/topics", data=fields, headers=headers).status_code == 403
    # Another browser has another cookie: a token that leaked is worth nothing to it.
    with httpx.Client(base_url=site.base_url) as other:
        other.get("/topics")
        assert other.post("/topics", data=fields).status_code == 403
    assert site.get(f"/topics/{name}").status_code == 404
    cookie = httpx.get(f"{site.base_url}/topics").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_what_is_said_on_a_page_cannot_be_chosen_by_a_link(site: httpx.Client) -> None:
    assert "please log in" not in site.get("/topics?note=please+log+in").text


def test_files_are_kept_by_browsers_and_small(site: httpx.Client) -> None:
    for name in ("console.js", "console.css", "wheel.svg"):
        answer = site.get(f"/static/{name}")
        assert "immutable" in answer.headers["cache-control"]
        assert len(answer.content) < 120_000
    assert site.get("/static/../server.py").status_code == 404
    assert site.get("/static/%2e%2e%2fserver.py").status_code == 404
