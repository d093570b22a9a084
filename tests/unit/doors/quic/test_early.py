"""What may be answered before a handshake is complete."""

import pytest

from headrace.doors.quic.early import EarlyFrames
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.fetch_request import FetchRequest
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.produce_request import ProduceRequest
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

HELLO = bytes(encode_request(ApiVersionsRequest("tests", "1"), 3, 1, "tests"))
NAMED = [MetadataRequestTopic(name="orders")]


def frame(request: Message, version: int) -> bytes:
    return bytes(encode_request(request, version, 1, "tests"))


@pytest.mark.requirement("R3.63")
@pytest.mark.parametrize(
    ("request_frame", "has_login", "passes"),
    [
        (HELLO, True, True),
        (frame(MetadataRequest(topics=None), 9), True, True),
        (frame(MetadataRequest(topics=NAMED, allow_auto_topic_creation=False), 9), True, True),
        (frame(MetadataRequest(topics=NAMED, allow_auto_topic_creation=True), 9), False, False),
        (frame(MetadataRequest(topics=NAMED), 3), False, False),
        (frame(FetchRequest(), 12), False, True),
        (frame(FetchRequest(), 12), True, False),
        (frame(ProduceRequest(), 9), False, False),
        (frame(SaslHandshakeRequest("PLAIN"), 1), True, False),
        (b"\x00\x00\x00\x10" + b"\x03\xe7" + b"\x00" * 14, False, False),
    ],
)
def test_questions_pass_and_changes_wait(request_frame: bytes, has_login: bool, passes: bool) -> None:
    early = EarlyFrames(has_login=has_login)
    assert early.receive(request_frame) == (request_frame if passes else b"")
    assert early.rest() == (b"" if passes else request_frame)


def test_nothing_overtakes_what_waits() -> None:
    waiting = frame(ProduceRequest(), 9)
    early = EarlyFrames(has_login=False)
    assert early.receive(HELLO + waiting + HELLO) == HELLO
    assert early.receive(HELLO) == b""
    assert early.rest() == waiting + HELLO + HELLO


def test_frames_pass_whole_however_they_come() -> None:
    early = EarlyFrames(has_login=False)
    passed = [early.receive(HELLO[at : at + 1]) for at in range(len(HELLO))]
    assert [each for each in passed if each] == [HELLO]


@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x02\x00\x00"])
def test_what_is_no_early_frame_waits_to_be_refused(size: bytes) -> None:
    early = EarlyFrames(has_login=False)
    assert early.receive(size + HELLO[4:]) == b""
    assert early.rest() == size + HELLO[4:]


def test_metadata_cut_short_waits() -> None:
    whole = frame(MetadataRequest(topics=NAMED, allow_auto_topic_creation=False), 9)
    for end in range(14, len(whole) - 1):
        cut = (end - 4).to_bytes(4, "big") + whole[4:end]
        early = EarlyFrames(has_login=False)
        assert early.receive(cut) == b""
