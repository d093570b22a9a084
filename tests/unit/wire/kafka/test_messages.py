"""Every generated message, every version: round trips, agrees with the slow encoder, survives bad input."""

import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.kafka_messages import (
    SCHEMAS,
    SlowEncoder,
    class_of,
    encoded,
    every_version,
    project,
    sample,
    values,
    versions_of,
)

from headrace.errors import MalformedRequest
from headrace.wire.kafka.messages import REQUESTS, RESPONSES


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_message_survives_the_round_trip_in_every_version(name: str, data: st.DataObject) -> None:
    value = data.draw(values(name))
    for version in versions_of(SCHEMAS[name]):
        sent = project(SCHEMAS[name], value, version)
        assert class_of(name).decode(encoded(sent, version), version) == sent


@pytest.mark.parametrize(("name", "version"), every_version())
@pytest.mark.parametrize("kind", ["full", "bare"])
def test_message_is_written_as_its_table_says(name: str, version: int, kind: str) -> None:
    value = sample(name, version, kind)
    assert encoded(value, version) == SlowEncoder(name, version).encode(value)


@pytest.mark.requirement("R4.6")
@pytest.mark.trap(4)
@pytest.mark.parametrize(("name", "version"), every_version())
def test_unknown_tagged_fields_are_skipped_in_every_struct(name: str, version: int) -> None:
    value = sample(name, version, "full")
    padded = SlowEncoder(name, version, unknown_tags=True).encode(value)
    assert class_of(name).decode(padded, version) == value


@pytest.mark.parametrize(("name", "version"), every_version())
def test_message_cut_short_anywhere_is_malformed(name: str, version: int) -> None:
    whole = encoded(sample(name, version, "full"), version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            class_of(name).decode(memoryview(whole)[:size], version)


@pytest.mark.trap(51)
@pytest.mark.parametrize(("name", "version"), every_version())
def test_absurd_counts_are_refused_before_allocating(name: str, version: int) -> None:
    encoder = SlowEncoder(name, version)
    whole = encoder.encode(sample(name, version, "full"))
    counts = [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"] if encoder.is_flexible else []
    counts += [] if encoder.is_flexible else [struct.pack(">i", 2**31 - 1), struct.pack(">i", -2)]
    for start, end in encoder.count_places:
        for lie in counts:
            forged = whole[:start] + lie + whole[end:]
            tracemalloc.start()
            with pytest.raises(MalformedRequest):
                class_of(name).decode(forged, version)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 1_000_000


@pytest.mark.parametrize("name", SCHEMAS)
def test_version_outside_the_range_is_malformed(name: str) -> None:
    first, last = class_of(name).VERSIONS
    for version in (first - 1, last + 1):
        with pytest.raises(MalformedRequest):
            class_of(name).decode(bytes(1000), version)


def test_bad_utf8_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="utf-8"):
        class_of("SaslHandshakeRequest").decode(b"\x00\x02\xc3\x28", 0)


def test_null_where_null_is_not_allowed_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        class_of("SaslHandshakeRequest").decode(b"\xff\xff", 0)
    with pytest.raises(MalformedRequest):
        class_of("MetadataRequest").decode(b"\xff\xff\xff\xff", 0)


def test_records_are_slices_of_the_frame() -> None:
    from headrace.wire.kafka.messages.produce_request import ProduceRequest

    frame = bytearray(encoded(sample("ProduceRequest", 9, "full"), 9))
    request = ProduceRequest.decode(frame, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_every_request_has_its_response() -> None:
    assert REQUESTS.keys() == RESPONSES.keys()
    for key, request in REQUESTS.items():
        assert request.API_KEY == RESPONSES[key].API_KEY == key
        assert request.VERSIONS == RESPONSES[key].VERSIONS
        assert request.FLEXIBLE_FROM == RESPONSES[key].FLEXIBLE_FROM
