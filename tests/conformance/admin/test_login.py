"""A node whose admin port asks who it is: every route as nobody, a reader and an administrator, by every way in; and what others try."""

import base64
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from google.protobuf import json_format
from tests.support.api_requests import ask_rest, tried_fields
from tests.support.node import NodeProcess, running_node

from headrace.admin.api.table import PREFIX, ROUTES, Route
from headrace.admin.console.pages import PAGES
from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages
from headrace.admin.rights import Resource

PASSWORDS = {"root": "wood and water 7391", "reader": "stone and flour 2846"}
SETTINGS = {
    "security.authorization.enable": "true",
    "security.audit.enable": "true",
    "listener.kafka.principal": "User:nobody",
}
LISTS = {route.name for route in ROUTES if route.right.field is None and route.right.resource is not Resource.CLUSTER}
CHANGES = {route.name for route in ROUTES if route.is_change} - {"SearchTopic", "ResetOffset"}
MESSAGES = Messages()


def headrace(*arguments: str, check: bool = True, **environment: str) -> str:
    command = [sys.executable, "-m", "headrace", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={"PATH": "", **environment})
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout + ("" if check else done.stderr)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The first user is made at the address that the node has written down, the second by the first."""
    directory = tmp_path_factory.mktemp("login") / "data"
    with running_node(directory, SETTINGS) as started:
        make_first(started)
        with httpx.Client(base_url=site_of(started) + PREFIX, auth=("root", PASSWORDS["root"])) as root:
            assert root.post("/topics", json={"name": "x"}).status_code == 200
            created = root.post("/users", json={"user": "reader", "password": PASSWORDS["reader"]})
            assert created.status_code == 200, created.text
            for operation, kind, name in (
                ("describe", "cluster", ""),
                ("describe-configs", "cluster", ""),
                ("read", "topic", "*"),
                ("describe-configs", "topic", "*"),
                ("read", "group", "*"),
                ("describe", "transactional-id", "*"),
            ):
                rule = {"principal": "reader", "operation": operation, "kind": kind, "name": name}
                assert root.post("/acls", json=rule).status_code == 200
        yield started


def site_of(node: NodeProcess) -> str:
    return f"http://{node.endpoints['admin']}"


def make_first(node: NodeProcess) -> None:
    path = node.data_dir / "first-login"
    assert path.stat().st_mode & 0o777 == 0o600
    address = path.read_text().strip()
    with httpx.Client() as browser:
        assert browser.get(site_of(node) + "/login?first=wrong").status_code == 403
        page = browser.get(address)
        form = {"user": "root", "password": PASSWORDS["root"], "again": PASSWORDS["root"]}
        first = urlsplit(address).query.removeprefix("first=")
        made = browser.post(address, data={**form, "first": first, "token": token_in(page)})
        assert made.status_code == 303, made.text
        assert browser.get(site_of(node) + "/topics").status_code == 200
        # It was good once, and only where there was nobody.
        assert browser.get(address).status_code == 403
    assert not path.exists()
    assert first not in node.log_path.read_text()


@pytest.fixture(scope="module")
def tokens(node: NodeProcess) -> dict[str, str]:
    """Of each user, made by the owner of the data directory."""
    return {
        user: headrace("user", "token", user, "--local", str(node.data_dir), "--note", "tests").strip()
        for user in PASSWORDS
    }


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
    assert found is not None, page.text
    return found[1]


@contextmanager
def logged_in(node: NodeProcess, user: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site_of(node), timeout=60) as browser:
        form = {"user": user, "password": PASSWORDS[user], "token": token_in(browser.get("/login"))}
        assert browser.post("/login", data=form).status_code == 303
        yield browser


# -- every route, by every way in ------------------------------------------------------------------------------------


def refused(node: NodeProcess, authorization: str, status: int) -> set[str]:
    headers = {"authorization": authorization} if authorization else {}
    with httpx.Client(base_url=site_of(node) + PREFIX, timeout=60, headers=headers) as api:
        answers = {route.name: ask_rest(route, api) for route in ROUTES}
    assert not {name: answer.text for name, answer in answers.items() if answer.status_code == 500}
    return {name for name, answer in answers.items() if answer.status_code == status}


def test_every_route_over_rest(node: NodeProcess, tokens: dict[str, str]) -> None:
    everything = {route.name for route in ROUTES}
    assert refused(node, "", 401) == everything
    for user, denied in (("reader", CHANGES), ("root", set())):
        assert refused(node, f"Bearer {tokens[user]}", 403) == denied
        assert refused(node, f"Bearer {tokens[user]}", 401) == set()


def call(channel: Any, route: Route, authorization: str) -> grpc.StatusCode:  # Any: grpc has no types
    method = channel.unary_unary(
        f"/{PACKAGE}.{SERVICE}/{route.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=MESSAGES.of(f"{route.name}Response").FromString,
    )
    request = json_format.ParseDict(tried_fields(route), MESSAGES.of(f"{route.name}Request")())
    try:
        method(request, timeout=60, metadata=(("authorization", authorization),) if authorization else ())
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_every_route_over_grpc(node: NodeProcess, tokens: dict[str, str]) -> None:
    basic = "Basic " + base64.b64encode(f"reader:{PASSWORDS['reader']}".encode()).decode()
    with grpc.insecure_channel(node.endpoints["grpc"]) as channel:
        for authorization, code, expected in (
            ("", grpc.StatusCode.UNAUTHENTICATED, {route.name for route in ROUTES}),
            (basic, grpc.StatusCode.PERMISSION_DENIED, CHANGES),
            (f"Bearer {tokens['root']}", grpc.StatusCode.PERMISSION_DENIED, set()),
        ):
            found = {route.name for route in ROUTES if call(channel, route, authorization) is code}
            assert found == expected


def path_of(page: Any) -> str:  # Any: a page of the table
    return re.sub(r"{(\w+)}", lambda found: "0" if found[1] in ("partition", "offset") else "x", page.path)


def test_every_page_and_form_of_the_console(node: NodeProcess) -> None:
    with httpx.Client(base_url=site_of(node)) as nobody:
        for page in PAGES:
            answer = nobody.request(page.method, path_of(page), data={} if page.method == "POST" else None)
            assert answer.status_code == (303 if page.method == "GET" else 401), page.path
            if page.method == "GET":
                assert "login" in answer.headers["location"], page.path
    with logged_in(node, "reader") as reader:
        token = token_in(reader.get("/topics"))
        for page in PAGES:
            path = path_of(page)
            if page.method == "GET" and "delete" not in path:
                assert reader.get(path).status_code in (200, 400, 404), path
            elif page.method == "POST":
                form = {"token": token, "typed": "x", "name": "x", "user": "x", "password": "p", "again": "p"}
                answer = reader.post(path, data={**form, "who": "x", "verb": "read", "permission": "allow"})
                assert answer.status_code in (400, 403, 404) or path.endswith(("/search", "/reset")), path
        assert reader.get("/topics/x").status_code == 200, "nothing of it was done"


def test_rights_are_asked_for_who_has_logged_in_and_lists_leave_out_the_rest(node: NodeProcess) -> None:
    root = httpx.BasicAuth("root", PASSWORDS["root"])
    api = site_of(node) + PREFIX
    assert httpx.post(f"{api}/users", json={"user": "carol", "password": "p"}, auth=root).status_code == 200
    carol = httpx.BasicAuth("carol", "p")
    for name in LISTS:
        route = next(each for each in ROUTES if each.name == name)
        assert httpx.get(api + route.path, auth=carol).json()["data"]["total"] == 0
    assert httpx.delete(f"{api}/users/carol", auth=root).status_code == 200
    assert httpx.get(f"{api}/topics", auth=carol).status_code == 401


# -- what others try -------------------------------------------------------------------------------------------------


def test_wrong_passwords_tokens_and_headers_are_refused_alike(node: NodeProcess, tokens: dict[str, str]) -> None:
    wrong = [
        "Basic " + base64.b64encode(text.encode()).decode()
        for text in ("root:wrong", "nobody:wrong", "root:", ":x", "root")
    ]
    wrong += [
        "Bearer",
        "Bearer x",
        f"Bearer {tokens['root'][:-1]}{'1' if tokens['root'].endswith('0') else '0'}",
        "Basic \xff",
        "Negotiate x",
        "Bearer " + "x" * 20_000,
    ]
    answers = [
        httpx.get(site_of(node) + PREFIX + "/topics", headers={b"authorization": each.encode("latin-1")})
        for each in wrong
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="headrace"'}
    assert answers[0].json()["error"]["message"] == answers[1].json()["error"]["message"]


def test_a_cookie_reads_and_changes_nothing_over_the_api(node: NodeProcess) -> None:
    with logged_in(node, "root") as browser:
        assert browser.get(PREFIX + "/topics").status_code == 200
        assert browser.post(PREFIX + "/topics", json={"name": "by-cookie"}).status_code == 401
        assert browser.delete(PREFIX + "/topics/x").status_code == 401


def test_cookies_are_kept_from_scripts_and_other_sites(node: NodeProcess) -> None:
    with httpx.Client(base_url=site_of(node)) as browser:
        page = browser.get("/login")
        form = {"user": "root", "password": PASSWORDS["root"], "token": token_in(page)}
        answer = browser.post("/login", data=form)
        for given in (page.headers["set-cookie"], answer.headers["set-cookie"]):
            assert "httponly" in given.lower()
            assert "samesite=strict" in given.lower()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"origin": "null"},
    ],
)
def test_another_sites_page_logs_nobody_in_or_out(node: NodeProcess, headers: dict[str, str]) -> None:
    with logged_in(node, "root") as browser:
        token = token_in(browser.get("/topics"))
        form = {"user": "root", "password": PASSWORDS["root"], "token": token}
        assert browser.post("/login", data=form, headers=headers).status_code == 403
        assert browser.post("/logout", data={"token": token}, headers=headers).status_code == 403
        assert browser.get("/topics").status_code == 200


def test_a_form_token_is_good_for_its_session_only(node: NodeProcess) -> None:
    with logged_in(node, "reader") as reader, logged_in(node, "root") as root:
        stolen = token_in(reader.get("/topics"))
        assert root.post("/topics", data={"token": stolen, "name": "stolen"}).status_code == 403
        assert root.post("/topics", data={"name": "stolen"}).status_code == 403
        before = token_in(root.get("/topics"))
        assert root.post("/logout", data={"token": before}).status_code == 303
        assert root.get("/topics").status_code == 303, "a session ends where it is logged out of"


def test_a_login_goes_on_to_a_page_of_ours_and_nowhere_else(node: NodeProcess) -> None:
    with httpx.Client(base_url=site_of(node)) as browser:
        asked = browser.get("/topics/x?start=oldest&limit=5")
        assert asked.headers["location"] == "../login?to=topics%2Fx%3Fstart%3Doldest%26limit%3D5"
        for target, expected in (
            ("topics/x?start=oldest&limit=5", "topics/x?start=oldest&limit=5"),
            ("//evil.example", "./"),
            ("https://evil.example", "./"),
            ("javascript:alert(1)", "./"),
            ("\\evil", "./"),
            ("a//evil.example", "./"),
            ("../../x", "./"),
            ("x\r\nset-cookie: a=b", "./"),
        ):
            form = {"user": "root", "password": PASSWORDS["root"], "to": target}
            answer = browser.post("/login", data={**form, "token": token_in(browser.get("/login"))})
            assert (answer.status_code, answer.headers["location"]) == (303, expected)


def test_deleting_a_user_ends_their_session_and_their_tokens(node: NodeProcess) -> None:
    root = httpx.BasicAuth("root", PASSWORDS["root"])
    api = site_of(node) + PREFIX
    PASSWORDS["dave"] = "first"
    assert httpx.post(
        f"{api}/users", json={"user": "dave", "password": "first", "is_super": True}, auth=root
    ).is_success
    made = httpx.post(f"{api}/users/dave/tokens", json={}, auth=root).json()["data"]["secret"]
    bearer = {"authorization": f"Bearer {made}"}
    with logged_in(node, "dave") as browser:
        assert browser.get("/topics").status_code == 200
        assert httpx.get(f"{api}/topics", headers=bearer).status_code == 200
        rows = httpx.get(f"{api}/sessions", auth=root).json()["data"]["sessions"]
        (mine,) = [row for row in rows if row["user"] == "dave"]
        assert not [cookie for cookie in browser.cookies.values() if cookie in str(rows)]
        assert httpx.delete(f"{api}/users/dave", auth=root).is_success
        assert browser.get("/topics").status_code == 303
        assert httpx.get(f"{api}/topics", headers=bearer).status_code == 401
        assert httpx.delete(f"{api}/sessions/{mine['session']}", auth=root).status_code == 404
    del PASSWORDS["dave"]


def test_an_administrator_ends_somebodys_session(node: NodeProcess) -> None:
    with logged_in(node, "reader") as reader, logged_in(node, "root") as root:
        page = root.get("/security/sessions?filter=reader")
        for number in re.findall(r"security/sessions/([0-9a-f]+)/end", page.text):
            assert root.post(f"/security/sessions/{number}/end", data={"token": token_in(page)}).status_code == 303
        assert (reader.get("/topics").status_code, root.get("/topics").status_code) == (303, 200)


def test_the_owner_of_the_data_directory_needs_no_password_and_a_socket_of_theirs_only(node: NodeProcess) -> None:
    path = node.data_dir / "admin.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost" + PREFIX) as owner:
        assert owner.get("/users").json()["data"]["total"] >= 2
        assert owner.get("/users", headers={"host": "evil.example"}).status_code == 403
        assert owner.get("/users", headers={"authorization": "Bearer wrong"}).status_code == 200


def test_the_command_line_says_who_it_is_by_a_token(node: NodeProcess, tokens: dict[str, str], tmp_path: Path) -> None:
    api = ["--api", site_of(node)]
    assert "HEADRACE_API_TOKEN" in headrace("user", "tokens", "root", *api, check=False)
    assert "tests" in headrace("user", "tokens", "root", *api, HEADRACE_API_TOKEN=tokens["reader"])
    assert "may not ALTER CLUSTER" in headrace(
        "user", "token", "root", *api, check=False, HEADRACE_API_TOKEN=tokens["reader"]
    )
    (tmp_path / "token").write_text(tokens["root"] + "\n")
    made = headrace("user", "token", "reader", "--days", "1", *api, "--token-file", str(tmp_path / "token")).strip()
    number = made.split("_")[1]
    headrace("user", "revoke", "reader", number, *api, "--token-file", str(tmp_path / "token"))
    assert number not in headrace("user", "tokens", "reader", "--local", str(node.data_dir))


def test_a_person_makes_and_revokes_a_token(node: NodeProcess) -> None:
    with logged_in(node, "root") as root:
        page = root.get("/security/users/reader")
        made = root.post(
            "/security/users/reader/tokens", data={"token": token_in(page), "note": "by hand", "days": "3"}
        )
        found = re.search(r"hr_[0-9a-f]{16}_[0-9a-f]{64}", made.text)
        assert found is not None
        assert made.headers["cache-control"] == "no-store"
        again = root.get("/security/users/reader")
        assert found[0] not in again.text
        assert "by hand" in again.text
        number = found[0].split("_")[1]
        done = root.post(f"/security/users/reader/tokens/{number}/revoke", data={"token": token_in(again)})
        assert done.status_code == 303
        assert number not in root.get("/security/users/reader").text


def test_headers_cannot_be_slipped_into_an_answer(node: NodeProcess) -> None:
    host, _, port = node.endpoints["admin"].rpartition(":")
    for target in ("/topics%0d%0aset-cookie:%20a=b", "/x?to=%0d%0aset-cookie:%20a=b", "/login?to=%0d%0ax"):
        with socket.create_connection((host, int(port)), 10) as raw:
            raw.sendall(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            head = b""
            while piece := raw.recv(65536):
                head += piece
        head = head.partition(b"\r\n\r\n")[0]
        assert b"set-cookie: a=b" not in head


def test_audit_has_who_was_refused_and_a_page_for_it(node: NodeProcess) -> None:
    with httpx.Client(base_url=site_of(node) + PREFIX) as caller:
        assert caller.get("/topics", auth=("reader", "not the password")).status_code == 401
        assert caller.delete("/topics/x", auth=("reader", PASSWORDS["reader"])).status_code == 403
    with logged_in(node, "root") as root:
        for _ in range(50):
            text = root.get("/security/audit").text
            if "operation DELETE" in text and "login refused" in text:
                break
        assert "reader" in text
        assert "operation DELETE" in text
        assert "login refused" in text


def audited(node: NodeProcess, kind: str, change: str) -> list[dict[str, Any]]:  # Any: JSON
    """Read at once, without waiting for anything."""
    with httpx.Client(base_url=site_of(node) + PREFIX, auth=("root", PASSWORDS["root"])) as root:
        found = root.get("/topics/__headrace_audit/records", params={"limit": 200}).json()["data"]["records"]
    events = [json.loads(record["value"]["data"]) for record in found]
    return [each["data"] for each in events if each["type"] == kind and each["data"].get("change") == change]


def test_a_change_is_in_the_audit_before_it_is_answered_with_what_was_before_and_after(node: NodeProcess) -> None:
    with httpx.Client(base_url=site_of(node) + PREFIX, auth=("root", PASSWORDS["root"])) as root:
        assert root.post("/topics", json={"name": "audited", "partitions": 1}).is_success
        (made,) = [
            row for row in audited(node, "headrace.admin.changed", "CreateTopic") if row["request"]["name"] == "audited"
        ]
        assert (made["principal"], made["host"]) == ("User:root", "127.0.0.1")
        change = {"set": {"retention.ms": "60000"}}
        assert root.patch("/topics/audited/configs", json=change).is_success
        altered = audited(node, "headrace.admin.changed", "UpdateTopicConfig")[0]
        assert (altered["before"], altered["after"]) == ({}, {"retention.ms": "60000"})
        assert root.patch(
            "/topics/audited/configs", json={"unset": ["retention.ms"]}, params={"dry_run": "true"}
        ).is_success
        assert len(audited(node, "headrace.admin.changed", "UpdateTopicConfig")) == 1
        assert root.post("/topics/audited/partitions", json={"count": 3}).is_success
        grown = audited(node, "headrace.admin.changed", "GrowTopic")[0]
        assert (grown["before"], grown["after"]) == (1, 3)
        assert root.delete("/topics/audited").is_success
        gone = audited(node, "headrace.admin.changed", "DeleteTopic")[0]
        assert gone["before"]["partitions"] == 3
        assert gone["before"]["config"] == {"retention.ms": "60000"}
        for number in range(5):
            user = f"short-{number}"
            assert root.post("/users", json={"user": user, "password": "tulips in december"}).is_success
            assert [row for row in audited(node, "headrace.access.changed", "user created") if row["user"] == user]
            assert root.delete(f"/users/{user}").is_success
            assert [row for row in audited(node, "headrace.access.changed", "user deleted") if row["user"] == user]
        assert "tulips" not in str(audited(node, "headrace.access.changed", "user created"))


def test_no_secret_is_in_the_log_the_directory_or_an_answer_about_users(
    node: NodeProcess, tokens: dict[str, str]
) -> None:
    """Runs last: it looks for everything that the tests above have used."""
    secrets = [*PASSWORDS.values(), *(token.rpartition("_")[2] for token in tokens.values())]
    with httpx.Client(base_url=site_of(node) + PREFIX, auth=("root", PASSWORDS["root"])) as root:
        texts = [
            root.get(path).text
            for path in ("/users", "/users/root", "/users/reader/tokens", "/sessions", "/brokers/0/configs")
        ]
    found = [node.log_path.read_text(errors="replace"), *texts]
    files = [path for path in node.data_dir.rglob("*") if path.is_file() and path.stat().st_size < 2**27]
    whole = [text.encode() for text in found] + [path.read_bytes() for path in files]
    assert not [secret for secret in secrets for text in whole if secret.encode() in text]
