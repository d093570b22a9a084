"""Strangers' bytes: whatever they are, a decoder gives a value or raises MalformedRequest, nothing else."""

import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kafka_messages import SCHEMAS, class_of, encoded, sample, versions_of

from headrace.errors import MalformedRequest
from headrace.wire.kafka import fetch, produce
from headrace.wire.kafka.headers import read_request_header
from headrace.wire.kafka.messages import REQUESTS

MUTATIONS_PER_LAYOUT = 200


def decode_anyway(name: str, version: int, data: bytes) -> None:
    """Every reader that could meet these bytes; only MalformedRequest may come out."""
    readers: list[Callable[[memoryview, int], object]] = [class_of(name).decode]
    if name == "ProduceRequest":
        readers.append(lambda view, version: produce.read_produce(view, 0, version))
    if name == "FetchRequest":
        readers.append(lambda view, version: fetch.read_fetch(view, 0, version))
    for read in readers:
        with contextlib.suppress(MalformedRequest):
            read(memoryview(data), version)


@pytest.mark.parametrize("name", SCHEMAS)
def test_damaged_messages_are_values_or_malformed(name: str) -> None:
    chance = random.Random(name)
    for version in versions_of(SCHEMAS[name]):
        whole = encoded(sample(name, version, "full"), version)
        for _ in range(MUTATIONS_PER_LAYOUT):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                place = chance.randrange(len(damaged) + 1)
                match chance.randrange(4):
                    case 0:
                        damaged[place : place + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF))])
                    case 1:
                        damaged[place:place] = chance.randbytes(chance.randint(1, 6))
                    case 2:
                        del damaged[place : place + chance.randint(1, 6)]
                    case _:
                        damaged[place : place + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
            decode_anyway(name, version, bytes(damaged))


@settings(max_examples=1500)
@given(data=st.binary(max_size=120), name=st.sampled_from(sorted(SCHEMAS)), pick=st.integers(0, 100))
def test_random_bytes_are_values_or_malformed(data: bytes, name: str, pick: int) -> None:
    versions = versions_of(SCHEMAS[name])
    decode_anyway(name, versions[pick % len(versions)], data)


@settings(max_examples=500)
@given(
    key=st.sampled_from(sorted(REQUESTS)),
    version=st.integers(-2, 20),
    rest=st.binary(max_size=120),
)
def test_random_frames_are_requests_or_malformed(key: int, version: int, rest: bytes) -> None:
    frame = memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest)
    with contextlib.suppress(MalformedRequest):
        header = read_request_header(frame)
        REQUESTS[key].decode(frame, version, header.body_at)
