"""Answers that tell addresses are exchanged, and nothing else is touched, however the bytes come."""

import random

import pytest

from headrace.clients.kafka_addresses import ASKED_MAX, Answers, Place, Requests
from headrace.wire.kafka.headers import encode_request, encode_response, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from headrace.wire.kafka.messages.fetch_request import FetchRequest
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseBroker


def swapped(place: Place) -> Place:
    return f"near-{place[0]}", place[1] + 10_000


CASES: list[tuple[Message, Message, Message, int]] = [
    (
        MetadataRequest(topics=None),
        MetadataResponse(brokers=[MetadataResponseBroker(1, "far", 9092), MetadataResponseBroker(2, "far2", 9093)]),
        MetadataResponse(
            brokers=[MetadataResponseBroker(1, "near-far", 19092), MetadataResponseBroker(2, "near-far2", 19093)]
        ),
        version,
    )
    for version in (1, 9, 12)
]
CASES += [
    (
        FindCoordinatorRequest(key="g"),
        FindCoordinatorResponse(host="far", port=9092),
        FindCoordinatorResponse(host="near-far", port=19092),
        3,
    ),
    (
        FindCoordinatorRequest(coordinator_keys=["g", "h"]),
        FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "far", 9092), Coordinator("h", -1, "", -1, 15)]),
        FindCoordinatorResponse(
            coordinators=[Coordinator("g", 1, "near-far", 19092), Coordinator("h", -1, "", -1, 15)]
        ),
        4,
    ),
    (
        DescribeClusterRequest(),
        DescribeClusterResponse(brokers=[DescribeClusterBroker(1, "far", 9092)]),
        DescribeClusterResponse(brokers=[DescribeClusterBroker(1, "near-far", 19092)]),
        1,
    ),
]


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
@pytest.mark.parametrize(("request_", "answer", "expected", "version"), CASES)
def test_addresses_are_exchanged(
    request_: Message, answer: Message, expected: Message, version: int, size: int
) -> None:
    requests = Requests()
    answers = Answers(requests.asked, swapped)
    fetch = bytes(encode_request(FetchRequest(), 12, 6, "x" * 50))
    for piece in pieces(fetch + bytes(encode_request(request_, version, 7, "x")) + fetch, size):
        requests.look(piece)
    untouched = bytes(encode_response(FetchResponse(), 12, 6))
    sent = untouched + bytes(encode_response(answer, version, 7)) + untouched
    got = b"".join(each for piece in pieces(sent, size) for each in answers.pass_on(piece))
    wanted = bytes(encode_response(expected, version, 7))
    assert got == untouched + wanted + untouched
    view = memoryview(wanted)[4:]
    assert read_response_header(view, answer.API_KEY, version)[0] == 7
    assert not requests.asked


def test_bytes_that_are_no_frames_pass_as_they_are() -> None:
    """After SaslHandshake v0 messages of the login come bare, and some are empty."""
    chance = random.Random(11)
    answers = Answers({7: (3, 9)}, swapped)
    bare = b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02ok" + b"\x00\x00\x00\x05token"
    assert b"".join(answers.pass_on(bare)) == bare
    for _ in range(200):
        junk = chance.randbytes(chance.randrange(1, 60))
        b"".join(Answers({}, swapped).pass_on(junk))


def test_an_answer_that_cannot_be_read_passes_as_it_is() -> None:
    broken = b"\x00\x00\x00\x08" + b"\x00\x00\x00\x07" + b"\xff\xff\xff\xff"
    assert b"".join(Answers({7: (3, 9)}, swapped).pass_on(broken)) == broken


def test_what_is_never_answered_is_forgotten() -> None:
    requests = Requests()
    for number in range(ASKED_MAX + 10):
        requests.look(bytes(encode_request(MetadataRequest(), 9, number, "x")))
    assert len(requests.asked) == ASKED_MAX
    assert 9 not in requests.asked
