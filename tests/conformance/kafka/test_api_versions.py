"""ApiVersions on the wire: every layout, the answer to a version nobody knows, and whether the list is true."""

import struct

import pytest
from tests.support.kafka_client import hand_made
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka

from headrace.doors.kafka.routes import ROUTES, advertised_ranges
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse

API_VERSIONS = 18
NO_CLIENT = b"\xff\xff"
FLEXIBLE_BODY = b"\x00\x04raw\x021\x00"
"""Header tags, software name, software version, body tags."""


def ask(client: RawKafka, version: int, correlation_id: int = 1, rest: bytes | None = None) -> bytes:
    if rest is None:
        rest = NO_CLIENT + (FLEXIBLE_BODY if version >= 3 else b"")
    client.send(hand_made(API_VERSIONS, version, correlation_id, rest))
    return client.read_frame()


def rows() -> list[tuple[int, int, int]]:
    return [(row.key, row.first, row.last) for row in advertised_ranges()]


@pytest.mark.requirement("R4.2", "R4.3", "R4.11", "R4.15", "R4.17", "R4.18", "R4.19", "R4.21", "R4.24")
@pytest.mark.trap(1, 45)
@pytest.mark.parametrize("version", [3, 4])
def test_flexible_answer_is_laid_out_to_the_byte(client: RawKafka, version: int) -> None:
    entries = b"".join(struct.pack(">hhhB", *row, 0) for row in rows())
    levels = ((b"group.version", 1), (b"transaction.version", 2))
    names = [struct.pack(">B", len(name) + 1) + name for name, _ in levels]
    supported = b"".join(name + struct.pack(">hhB", 0, row[1], 0) for name, row in zip(names, levels, strict=True))
    finalized = b"".join(name + struct.pack(">hhB", row[1], row[1], 0) for name, row in zip(names, levels, strict=True))
    tags = [(1, struct.pack(">q", 0)), (2, b"\x03" + finalized)]
    if version > 3:
        tags.insert(0, (0, b"\x03" + supported))
    features = struct.pack(">B", len(tags)) + b"".join(struct.pack(">BB", tag, len(data)) + data for tag, data in tags)
    expected = struct.pack(">ihB", 7, 0, len(rows()) + 1) + entries + struct.pack(">i", 0) + features
    assert ask(client, version, 7) == expected
    assert struct.pack(">hhhB", 18, 0, 4, 0) in entries


@pytest.mark.requirement("R4.15", "R4.22", "R4.24")
@pytest.mark.trap(45)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_answer_is_laid_out_to_the_byte(client: RawKafka, version: int) -> None:
    entries = b"".join(struct.pack(">hhh", *row) for row in rows())
    throttle = b"" if version == 0 else bytes(4)
    assert ask(client, version, 8) == struct.pack(">ihi", 8, 0, len(rows())) + entries + throttle


@pytest.mark.requirement("R4.16", "R4.23")
@pytest.mark.trap(2)
@pytest.mark.parametrize("version", [5, 99, 32767, -1, -32768])
def test_unknown_version_is_answered_in_v0_and_the_connection_lives(client: RawKafka, version: int) -> None:
    """C54: a client that only reads the first entries learns our range and comes back."""
    answer = ask(client, version, 9, rest=b"whatever a future version puts here")
    assert answer == struct.pack(">ihihhh", 9, 35, 1, 18, 0, 4)
    assert len(answer) == 16
    assert ask(client, 4, 10)[:6] == struct.pack(">ih", 10, 0)


@pytest.mark.requirement("R4.24")
@pytest.mark.trap(37, 47)
def test_every_range_is_the_one_the_door_serves(client: RawKafka) -> None:
    told = ApiVersionsResponse.decode(ask(client, 0), 0, 4).api_keys
    assert {row.api_key: row.max_version for row in told} == {key: route.versions[1] for key, route in ROUTES.items()}
    for row in told:
        first = ROUTES[row.api_key].versions[0]
        assert row.min_version == (0 if row.api_key == 0 else first)


@pytest.mark.requirement("X4.2")
@pytest.mark.trap(5, 13)
def test_ranges_old_and_new_clients_depend_on(client: RawKafka) -> None:
    told = {row.api_key: (row.min_version, row.max_version) for row in client.api_versions().api_keys}
    assert told[0][0] == 0  # or librdkafka before 2.7 sends everything uncompressed
    assert told[0][1] >= 11
    assert told[1][1] >= 16
    assert told[75] == (0, 0)
    # 71 and 72 (telemetry) make clients send what nobody wants.
    assert not told.keys() & {71, 72}


@pytest.mark.trap(46)
@pytest.mark.parametrize("key", [row.key for row in advertised_ranges() if row.key != API_VERSIONS])
def test_version_above_the_range_closes_the_connection(node: NodeProcess, key: int) -> None:
    with RawKafka(node.kafka) as client:
        client.send(hand_made(key, ROUTES[key].versions[1] + 1, 1, NO_CLIENT + bytes(64)))
        assert client.socket.recv(1) == b""


@pytest.mark.requirement("R4.14", "R4.25")
@pytest.mark.trap(46)
@pytest.mark.parametrize("key", [4, 71, 93, 999, -1])
def test_unknown_key_is_named_an_error_then_closed(node: NodeProcess, key: int) -> None:
    """C61: the correlation id and error 35, so that whoever looks at the bytes knows what happened."""
    with RawKafka(node.kafka) as client:
        client.send(hand_made(key, 0, -5, NO_CLIENT))
        assert client.read_frame() == struct.pack(">ih", -5, 35)
        assert client.is_closed_by_peer()
