"""Meta frames, names, messages, numbering and payloads of Logjam."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidName, MalformedRequest
from headrace.wire.logjam.messages import (
    ReplyForm,
    build_data,
    build_ping,
    build_reply,
    open_envelope,
    parse_data,
    parse_ping,
)
from headrace.wire.logjam.meta import SEQUENCE_MAX, Meta, decode_meta, encode_meta
from headrace.wire.logjam.names import APP_ENV_LENGTH_MAX, log_topic_name, parse_stream
from headrace.wire.logjam.payload import decode_request, read_request_id
from headrace.wire.logjam.sequence import DEVICES_MAX, GapDetector, SequenceNumbers

u64 = st.integers(min_value=0, max_value=2**64 - 1)


@given(
    compression=st.integers(min_value=0, max_value=255),
    device_number=st.integers(min_value=0, max_value=2**32 - 1),
    created_ms=u64,
    sequence=u64,
)
def test_meta_round_trips(compression: int, device_number: int, created_ms: int, sequence: int) -> None:
    meta = Meta(compression=compression, device_number=device_number, created_ms=created_ms, sequence=sequence)
    assert decode_meta(encode_meta(meta)) == meta


@given(frame=st.binary(max_size=40))
def test_meta_of_rubbish_raises_only_our_errors(frame: bytes) -> None:
    try:
        decode_meta(frame)
    except MalformedRequest:
        return
    assert len(frame) in (22, 24)


@pytest.mark.parametrize("length", [n for n in range(30) if n not in (22, 24)])
def test_meta_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MalformedRequest):
        decode_meta(encode_meta(Meta(created_ms=1, sequence=1)).ljust(30, b"\0")[:length])


@pytest.mark.parametrize("app_env", [b"", b"-", b"a-", b"-a", b"app", b"a\x00-b", b"caf\xc3\xa9-prod", b"x" * 300])
def test_bad_streams_are_refused(app_env: bytes) -> None:
    with pytest.raises(InvalidName):
        parse_stream(app_env)


def test_the_environment_is_what_follows_the_last_hyphen() -> None:
    assert parse_stream(b"my-app-2-production") == ("my-app-2", "production")


def test_log_topics_have_names_that_every_door_takes() -> None:
    assert log_topic_name(parse_stream(b"my app.2-pre/view")) == "logjam-my_app_2-pre_view"
    longest = b"a" * (APP_ENV_LENGTH_MAX - 2) + b"-b"
    assert len(log_topic_name(parse_stream(longest))) == 255


def test_parts_of_a_message_come_back() -> None:
    meta = Meta(created_ms=5, sequence=6)
    frames = build_data(b"a-b", b"logs", b"{}", meta)
    message = parse_data(frames)
    assert (message.app_env, message.topic, message.body, message.meta) == (b"a-b", b"logs", b"{}", meta)
    envelope = open_envelope(build_ping(b"a-b", meta))
    assert envelope.is_ping
    assert parse_ping(envelope.frames) == (b"a-b", meta)


def test_three_frames_only_where_allowed() -> None:
    frames = [b"a-b", b"logs", b"{}"]
    with pytest.raises(MalformedRequest):
        parse_data(frames)
    assert parse_data(frames, allows_three_frames=True, now_ms=7).meta.created_ms == 7


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_another_number_of_frames_is_malformed(count: int) -> None:
    with pytest.raises(MalformedRequest):
        parse_data([b"a-b"] * count)


@pytest.mark.parametrize("form", ReplyForm)
def test_the_status_is_always_the_last_frame(form: ReplyForm) -> None:
    assert build_reply(form, b"a-b", b"202 Accepted")[-1] == b"202 Accepted"


def test_numbers_start_again_at_one() -> None:
    numbers = SequenceNumbers(last=SEQUENCE_MAX - 1)
    assert [numbers.next(), numbers.next(), numbers.next()] == [SEQUENCE_MAX, 1, 2]


def test_gaps_are_counted_per_device() -> None:
    gaps = GapDetector()
    assert [gaps.observe(1, s, now_ms=0) for s in (5, 6, 9, 3, 4)] == [0, 0, 2, 0, 0]
    assert gaps.observe(2, 100, now_ms=0) == 0
    assert gaps.observe(0, 1, now_ms=0) + gaps.observe(0, 50, now_ms=0) == 0
    assert gaps.lost_total == 2


def test_silent_devices_become_stale_after_six_heartbeats() -> None:
    gaps = GapDetector()
    gaps.observe(1, 1, now_ms=0)
    gaps.observe(2, 1, now_ms=20_000)
    assert gaps.stale_devices(now_ms=30_000) == []
    assert gaps.stale_devices(now_ms=30_001) == [1]
    gaps.expect_again(1, now_ms=30_001)
    assert gaps.stale_devices(now_ms=30_001) == []
    assert gaps.observe(1, 5, now_ms=30_002) == 3


def test_a_flood_of_device_numbers_does_not_grow_the_table() -> None:
    gaps = GapDetector()
    for number in range(1, DEVICES_MAX + 10):
        gaps.observe(number, 1, now_ms=number)
    assert len(gaps._devices) == DEVICES_MAX


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"null", b"{", b'{"a":"\xff"}', b"[" * 100_000, b"{}{}"])
def test_bodies_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_request_id(body)


def test_a_log_request_without_its_mandatory_fields_is_refused() -> None:
    assert read_request_id(b'{"action":"A#b"}') is None
    with pytest.raises(MalformedRequest, match="started_at"):
        decode_request(b'{"action":"A#b"}')
