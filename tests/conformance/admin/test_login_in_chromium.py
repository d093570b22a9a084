"""Logging in as a person does: the first user, a session, a token, logging out; over TLS, where cookies are for TLS only."""

import ssl
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from tests.support.browser import browser, needs_browser
from tests.support.certificates import Authority
from tests.support.node import NodeProcess, running_node

pytestmark = needs_browser

PASSWORD = "wood and water"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[NodeProcess]:
    certificate, key = authority.issue("server")
    settings = {
        "security.authorization.enable": "true",
        "security.audit.enable": "true",
        "listener.admin.tls.certificate": str(certificate),
        "listener.admin.tls.key": str(key),
    }
    with running_node(tmp_path_factory.mktemp("person") / "data", settings) as started:
        yield started


@pytest.fixture(scope="module")
def page(node: NodeProcess) -> Iterator[Any]:  # Any: playwright's own types
    with browser() as chromium:
        context = chromium.new_context(base_url=f"https://{node.endpoints['admin']}", ignore_https_errors=True)
        found = context.new_page()
        complaints: list[str] = []
        found.on("pageerror", lambda error: complaints.append(str(error)))
        yield found
        assert complaints == []
        context.close()


def test_a_person_makes_the_first_user_leaves_comes_back_and_lets_programs_in(
    page: Any, node: NodeProcess, authority: Authority
) -> None:
    """One story, for each part of it needs the one before."""
    make_the_first_user_and_work(page, node)
    leave_and_come_back(page)
    ask_as_a_program(node, authority)


def make_the_first_user_and_work(page: Any, node: NodeProcess) -> None:
    page.goto("/topics")
    assert page.get_by_text("There is no user yet.").is_visible()
    address = (node.data_dir / "first-login").read_text().strip()
    assert address.startswith("https://")
    page.goto(address)
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Once more").fill("another")
    page.get_by_role("button", name="Make this user").click()
    assert page.get_by_role("alert").inner_text() == "these were two different passwords"
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Once more").fill(PASSWORD)
    page.get_by_role("button", name="Make this user").click()
    page.wait_for_url("**/")
    assert page.get_by_role("button", name="Log out").is_visible()
    cookies = page.context.cookies()
    assert len(cookies) == 2
    for cookie in cookies:
        assert cookie["secure"]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
    page.goto("/security/users/root")
    page.get_by_label("For").fill("backup")
    page.get_by_role("button", name="Make a token").click()
    secret = page.locator("code.secret").inner_text()
    assert secret.startswith("hr_")
    page.goto("/security/sessions")
    assert page.locator("tbody tr").count() == 1
    page.goto("/topics")
    page.locator("details.form summary").click()
    page.locator("details.form input[name=name]").fill("made-by-root")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/made-by-root**")


def leave_and_come_back(page: Any) -> None:
    """Leaving ends the session, and coming back goes where one wanted."""
    page.goto("/groups")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/groups?filter=x")
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert page.get_by_role("alert").inner_text() == "wrong user or password"
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/groups?filter=x")
    assert page.get_by_role("button", name="Log out").is_visible()


def ask_as_a_program(node: NodeProcess, authority: Authority) -> None:
    """REST and gRPC are encrypted with the same certificate."""
    context = ssl.create_default_context(cafile=authority.certificate)
    port = node.endpoints["admin"].rpartition(":")[2]
    answer = httpx.get(f"https://localhost:{port}/api/v1/topics", auth=("root", PASSWORD), verify=context)
    assert answer.status_code == 200
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    with grpc.secure_channel("localhost:" + node.endpoints["grpc"].rpartition(":")[2], credentials) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/headrace.admin.v1.AdminService/ListTopics")(b"", timeout=30)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with grpc.insecure_channel(node.endpoints["grpc"]) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/headrace.admin.v1.AdminService/ListTopics")(b"", timeout=30)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
