"""What a page of somebody else's can make a browser on this machine send, and who may come in at all."""

import httpx
import pytest
from tests.support.node import NodeProcess

from headrace.admin.guard import Guard
from headrace.errors import Denied


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9642", "127.0.0.1.evil.example", "", "[::2]", "localhost@evil"]
)
def test_a_name_that_is_not_ours_is_refused_so_that_rebinding_dns_gains_nothing(api: httpx.Client, host: str) -> None:
    answer = api.get("/topics", headers={"host": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9642", "127.0.0.1", "[::1]:1"])
def test_names_of_this_machine_are_ours(api: httpx.Client, host: str) -> None:
    assert api.get("/topics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_another_sites_page_is_refused(api: httpx.Client, name: str, headers: dict[str, str]) -> None:
    answer = api.post("/topics", json={"name": name}, headers=headers)
    assert answer.status_code == 403
    assert api.get(f"/topics/{name}").status_code == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_can_send_without_asking_is_no_request(api: httpx.Client, name: str, kind: str) -> None:
    answer = api.post("/topics", content=f'{{"name": "{name}"}}', headers={"content-type": kind})
    assert answer.status_code == 400
    assert api.get(f"/topics/{name}").status_code == 404


def test_our_own_pages_may_change_things(api: httpx.Client, name: str) -> None:
    headers = {"origin": str(api.base_url).removesuffix("/api/v1/"), "sec-fetch-site": "same-origin"}
    assert api.post("/topics", json={"name": name}, headers=headers).status_code == 200


def test_no_answer_lets_another_site_read_it(api: httpx.Client) -> None:
    answer = api.get("/topics", headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    preflight = api.options(
        "/topics", headers={"origin": "https://evil.example", "access-control-request-method": "POST"}
    )
    assert preflight.status_code in (403, 405)


def test_a_log_line_cannot_be_forged_by_a_name(api: httpx.Client, node: NodeProcess) -> None:
    api.get("/groups/x%0a%7B%22event%22%3A%20%22forged%22%7D")
    api.delete("/topics/x%0aforged")
    assert not any(line.startswith(('{"event": "forged"', "forged")) for line in node.log_text().splitlines())


def test_a_proxy_on_this_machine_speaks_for_whom_it_names_and_not_for_this_machine(api: httpx.Client) -> None:
    assert api.get("/topics", headers={"x-forwarded-for": "10.0.0.9"}).status_code == 401
    # What the client itself has put there stands before what the proxy adds.
    assert api.get("/topics", headers={"x-forwarded-for": "127.0.0.1, 10.0.0.9"}).status_code == 401
    assert api.get("/topics", headers={"x-forwarded-for": "localhost"}).status_code == 401
    assert api.get("/topics").status_code == 200


def test_the_address_that_a_connection_came_to_is_a_name_of_ours_and_no_other_is() -> None:
    guard = Guard([])
    guard.check({"host": "10.0.0.7:9642", "origin": "http://10.0.0.7:9642"}, is_change=True, reached="10.0.0.7")
    for host in ("10.0.0.8", "evil.example", ""):
        with pytest.raises(Denied):
            guard.check({"host": host}, is_change=False, reached="10.0.0.7")
    with pytest.raises(Denied):
        guard.check({"host": ""}, is_change=False, reached="")


def test_more_names_can_be_given() -> None:
    guard = Guard(["Mill.Example"])
    guard.check({"host": "mill.example:80", "origin": "https://mill.example"}, is_change=True)
    with pytest.raises(Denied, match=r"admin\.hosts"):
        guard.check({"host": "other.example"}, is_change=False)
