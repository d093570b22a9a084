import socket
from collections.abc import Callable

import pytest
from tests.support.listener import Listener

from headrace.errors import Unavailable
from headrace.pipeline.source import broker
from headrace.pipeline.source.batch import plan_batch
from headrace.pipeline.source.broker import BrokerClient
from headrace.pipeline.source.options import parse_options
from headrace.wire.kafka.headers import encode_response
from headrace.wire.kafka.messages.metadata_response import MetadataResponse


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "FIRST_ANSWER_S", 0.05)
    monkeypatch.setattr(broker, "RETRY_PAUSE_S", 0.01)


def plan_from(*addresses: str) -> None:
    plan_batch(parse_options({"kafka.bootstrap.servers": ",".join(addresses), "subscribe": "orders"}, is_stream=False))


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_where_nobody_listens_is_named_with_what_to_check() -> None:
    address = unused_address()
    with pytest.raises(Unavailable) as failure:
        plan_from(address)
    assert str(failure.value) == (
        f"no Kafka broker answers at {address} (no connection to {address}: Connection refused): "
        "check kafka.bootstrap.servers, that a node runs there, and that it is the port of its Kafka door"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: None, r"did not answer within 0\.05 s"),
        (lambda _: b"", "closed by the peer"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "announced a frame of 1213486160 bytes"),
        (lambda _: b"\0\0\0\x04\0\0\0\x01", "answered what cannot be read"),
    ],
    ids=["silence", "close", "http", "header"],
)
def test_who_does_not_speak_kafka_is_named_too(answer: Callable[[bytes], bytes | None], reason: str) -> None:
    stranger = Listener(answer)
    nobody = unused_address()
    try:
        with pytest.raises(Unavailable, match=f"at {nobody},{stranger.address} .*{reason}.*: check kafka.bootstrap"):
            plan_from(nobody, stranger.address)
    finally:
        stranger.close()


def test_a_cluster_that_has_answered_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts again must not end the query of somebody who has read from it."""
    asked = 0

    def first_and_fourth(request: bytes) -> bytes:
        nonlocal asked
        asked += 1
        correlation_id = int.from_bytes(request[8:12], "big")
        answer = encode_response(MetadataResponse(), broker.METADATA_VERSION, correlation_id)
        return bytes(answer) if asked in (1, 4) else b""

    monkeypatch.setattr(broker, "RETRY_PAUSE_S", 0.06)
    listener = Listener(first_and_fourth)
    host, _, port = listener.address.rpartition(":")
    try:
        client = BrokerClient([(host, int(port))], first_answer_s=0.05)
        assert client.topics(None) == []
        client.close()
        assert client.topics(None) == []
        client.close()
    finally:
        listener.close()
    assert asked == 4
