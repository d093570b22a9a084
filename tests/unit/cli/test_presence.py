"""Strangers at an address are named within a moment, whatever they say."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.listener import Listener, as_kafka
from tests.support.ports import kept_port

from headrace.cli import presence
from headrace.cli.presence import first_words, require_kafka, require_node
from headrace.clients.connection import CannotConnect, ConnectionLost
from headrace.errors import Invalid, MalformedRequest, Unavailable


@pytest.fixture
def listen() -> Iterator[Callable[[Callable[[bytes], bytes | None]], str]]:
    listeners: list[Listener] = []

    def start(answer: Callable[[bytes], bytes | None]) -> str:
        listeners.append(Listener(answer))
        return listeners[-1].address

    yield start
    for listener in listeners:
        listener.close()


Listen = Callable[[Callable[[bytes], bytes | None]], str]


@pytest.fixture
def nobody() -> Iterator[str]:
    with kept_port() as port:
        yield f"127.0.0.1:{port}"


def test_a_kafka_broker_is_recognised(listen: Listen, nobody: str) -> None:
    require_kafka(listen(as_kafka))
    require_kafka(f"{nobody}, {listen(as_kafka)}")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00"])
def test_who_speaks_something_else_is_named_at_once(listen: Listen, answer: bytes) -> None:
    address = listen(lambda asked: answer)
    with pytest.raises(Unavailable, match=f"{address} does not speak Kafka's protocol"):
        require_kafka(address)


def test_who_says_nothing_is_not_waited_for_for_ever(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "ANSWER_SECONDS_MAX", 0.05)
    address = listen(lambda asked: None)
    with pytest.raises(Unavailable, match=f"no answer from {address} in"):
        require_kafka(address)


def test_nobody_at_all_is_the_systems_reason(nobody: str) -> None:
    for require in (require_node, require_kafka):
        with pytest.raises(Unavailable, match=f"no node at {nobody}: Connection refused; no node at {nobody}: "):
            require(f"{nobody},{nobody}")
        with pytest.raises(Invalid, match="is not host:port"):
            require("localhost")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer from localhost:1 in 15 s: is that mlog's port"),
        (ConnectionLost("closed"), "does not speak mlog's protocol"),
        (MalformedRequest("frame of 1414541105 bytes"), "does not speak mlog's protocol"),
    ],
)
def test_the_first_words_to_a_door(error: Exception, words: str) -> None:
    with pytest.raises(Unavailable, match=words), first_words("mlog", "localhost:1"):
        raise error


def test_a_refused_connection_keeps_its_words() -> None:
    with pytest.raises(CannotConnect, match="no node"), first_words("mlog", "localhost:1"):
        raise CannotConnect("no node at localhost:1: Connection refused")
