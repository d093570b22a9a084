"""The command line's REST client: what it makes of refusals, and of lists in pages."""

import ssl
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace.cli import rest
from headrace.cli.rest import RestClient
from headrace.errors import Denied, HeadraceError, Rejected, TopicNotFound, Unauthenticated, Unavailable


class Script:
    """A connection that answers one thing after the other, and notes what was asked."""

    def __init__(self, answers: list[tuple[int, Any]]) -> None:  # Any: JSON
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, place: str, timeout: float) -> "Script":
        return self

    def request(self, method: str, target: str, *, body: bytes | None, headers: dict[str, str]) -> None:
        self.asked.append(f"{method} {target}")

    def getresponse(self) -> Any:  # Any: as much of a response as is read
        status, document = self.answers.pop(0)
        return SimpleNamespace(status=status, read=lambda: msgspec.json.encode(document))

    def close(self) -> None: ...


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, Any]) -> Script:  # Any: JSON
    script = Script(list(answers))
    monkeypatch.setattr(rest, "HTTPConnection", script)
    return script


def refusal(reason: str, message: str, hint: str | None = None) -> dict[str, object]:
    error = {"code": 1, "reason": reason, "message": message}
    return {"success": False, "data": None, "error": error, "leader_hint": hint}


def page(token: str, *names: str, others: list[dict[str, str]] | None = None) -> dict[str, object]:
    data = {"groups": list(names), "next_page_token": token, "other_brokers": others or []}
    return {"success": True, "data": data, "error": None}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "UNKNOWN_TOPIC_OR_PARTITION", TopicNotFound),
        (403, "CLUSTER_AUTHORIZATION_FAILED", Denied),
        (401, "SASL_AUTHENTICATION_FAILED", Unauthenticated),
        (503, "COORDINATOR_LOAD_IN_PROGRESS", Unavailable),
        (400, "INVALID_REQUEST", Rejected),
    ],
)
def test_a_refusal_is_the_error_that_it_was(
    monkeypatch: pytest.MonkeyPatch, status: int, reason: str, kind: type[HeadraceError]
) -> None:
    answering(monkeypatch, (status, refusal(reason, "why")))
    with pytest.raises(kind, match="why") as raised:
        RestClient("http://node:1").get("topics", "x")
    assert type(raised.value) is kind


def test_a_denial_is_said_in_the_words_of_the_command_but_who_is_unknown_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, (403, refusal("A", "may not")), (401, refusal("B", "who is it")))
    client = RestClient("http://node:1", denial="not allowed here")
    with pytest.raises(Denied, match=r"^not allowed here$"):
        client.get("topics")
    with pytest.raises(Unauthenticated, match=r"who is it.*--token-file"):
        client.get("topics")


def test_where_another_broker_has_it_its_api_is_named_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    script = answering(monkeypatch, (503, refusal("NOT_COORDINATOR", "looked after by b", "b.example:9642")))
    with pytest.raises(Unavailable, match=r"looked after by b; its API is at b\.example:9642"):
        RestClient("http://node:1").get("groups", "x")
    assert script.asked == ["GET /api/v1/groups/x"]


def test_pages_are_read_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    script = answering(monkeypatch, (200, page("next/one", "a")), (200, page("", "b")))
    found = [
        name for each in RestClient("http://node:1/below/").pages("groups", filter="a b") for name in each["groups"]
    ]
    assert found == ["a", "b"]
    assert script.asked == [
        "GET /below/api/v1/groups?filter=a+b&page_size=1000&page_token=",
        "GET /below/api/v1/groups?filter=a+b&page_size=1000&page_token=next%2Fone",
    ]


def test_a_list_that_lacks_the_rows_of_a_broker_is_not_shown_as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, (200, page("", "a", others=[{"broker": "b", "admin": ""}])))
    with pytest.raises(Unavailable, match="no answer from b"):
        list(RestClient("http://node:1").pages("groups"))


def test_a_certificate_that_nobody_vouches_for_is_said_so_and_how_to_believe_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def request(*_: object, **__: object) -> None:
        error = ssl.SSLCertVerificationError(1, "certificate verify failed")
        error.verify_message = "self-signed certificate"
        raise error

    monkeypatch.setattr(answering(monkeypatch), "request", request)
    with pytest.raises(Unavailable) as refused:
        RestClient("http://node:9642").get("topics")
    assert str(refused.value) == (
        "http://node:9642: its certificate is not believed: self-signed certificate; "
        "HEADRACE_API_CA names the file of who signed it"
    )
