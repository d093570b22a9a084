"""DescribeTopicPartitions on the wire: its one version, its order, its pages."""

import struct

import pytest
from tests.support.kafka_client import call_to_the_last_byte, described, hand_made
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.kafka.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse

EVERYTHING = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""What may be done to a topic where nobody is asked who they are: as Kafka without an authorizer tells it here, asked or not."""


def describe(
    client: RawKafka, names: list[str], *, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    return call_to_the_last_byte(client, request, 0, DescribeTopicPartitionsResponse)


def pages(client: RawKafka, names: list[str], limit: int) -> list[list[tuple[str | None, list[int]]]]:
    """Every page until there is no cursor: name and partition numbers of each topic in it."""
    found = []
    cursor: Cursor | None = None
    while True:
        answer = describe(client, names, limit=limit, cursor=cursor)
        found.append([(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics])
        if answer.next_cursor is None:
            return found
        cursor = Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@pytest.mark.requirement("R4.12", "R4.26", "R4.27", "R4.28", "R4.30", "R4.31", "R4.32", "R4.34", "X4.3")
def test_topic_is_laid_out_to_the_byte(client: RawKafka, name: str) -> None:
    client.create_topic(name, 2)
    known = described(client, name)
    encoded = name.encode()
    # Client id "cli", header tags, one topic, limit, no cursor, tags.
    rest = (
        b"\x00\x03cli\x00" + b"\x02" + bytes([len(encoded) + 1]) + encoded + b"\x00" + struct.pack(">ibB", 100, -1, 0)
    )
    client.send(hand_made(75, 0, 4711, rest))
    node = struct.pack(">Bi", 2, known.partitions[0].leader_id)
    partitions = b"".join(
        struct.pack(">hiii", 0, row.partition_index, row.leader_id, row.leader_epoch)
        + node  # replicas
        + node  # in sync
        + b"\x01\x01\x01"  # eligible leaders, last known ones, offline replicas: none
        + b"\x00"
        for row in known.partitions
    )
    assert client.read_frame() == (
        struct.pack(">iB", 4711, 0)
        + struct.pack(">i", 0)  # throttle time
        + b"\x02"
        + struct.pack(">h", 0)
        + bytes([len(encoded) + 1])
        + encoded
        + known.topic_id
        + b"\x00"  # not internal
        + b"\x03"
        + partitions
        + struct.pack(">i", EVERYTHING)
        + b"\x00"
        + b"\xff"  # no further page
        + b"\x00"
    )


@pytest.mark.requirement("R4.29", "X4.2")
def test_unknown_topic_is_an_entry_to_the_byte(client: RawKafka) -> None:
    client.send(hand_made(75, 0, 1, b"\xff\xff\x00" + b"\x02\x05nope\x00" + struct.pack(">ibB", 100, -1, 0)))
    assert client.read_frame() == (
        struct.pack(">iBi", 1, 0, 0)
        + b"\x02"
        + struct.pack(">h", 3)
        + b"\x05nope"
        + bytes(16)
        + b"\x00\x01"
        + struct.pack(">i", EVERYTHING)
        + b"\x00\xff\x00"
    )


@pytest.mark.requirement("R4.28", "R4.29", "X4.2")
def test_topics_are_answered_in_the_order_of_their_names(client: RawKafka, name: str) -> None:
    for suffix in ("c", "a"):
        client.create_topic(f"{name}-{suffix}", 1)
    answer = describe(client, [f"{name}-{suffix}" for suffix in "cbacb"])
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        (f"{name}-a", 0),
        (f"{name}-b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (f"{name}-c", 0),
    ]
    assert answer.next_cursor is None


@pytest.mark.requirement("R4.33")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 9, 100])
def test_pages_together_are_every_partition_once(client: RawKafka, name: str, limit: int) -> None:
    names = [f"{name}-{suffix}" for suffix in "abc"]
    for topic, count in zip(names, (4, 1, 4), strict=True):
        client.create_topic(topic, count)
    found = pages(client, names, limit)
    rows = [(topic, index) for page in found for topic, indexes in page for index in indexes]
    assert rows == [(names[0], i) for i in range(4)] + [(names[1], 0)] + [(names[2], i) for i in range(4)]
    assert all(sum(len(indexes) for _, indexes in page) <= limit for page in found)
    assert len(found) == -(-9 // limit)


@pytest.mark.requirement("R4.33")
@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_senseless_limit_still_moves_on(client: RawKafka, name: str, limit: int) -> None:
    client.create_topic(name, 3)
    assert pages(client, [name], limit) == [[(name, [0])], [(name, [1])], [(name, [2])]]


@pytest.mark.requirement("R4.33")
def test_a_cursor_behind_the_last_partition_is_the_end(client: RawKafka, name: str) -> None:
    client.create_topic(name, 2)
    assert describe(client, [], cursor=Cursor("~", 0)).topics == []
    beyond = describe(client, [name], cursor=Cursor(name, 77))
    assert [(topic.name, topic.partitions) for topic in beyond.topics] == [(name, [])]
    assert beyond.next_cursor is None


@pytest.mark.requirement("R4.27")
def test_no_names_means_every_topic(client: RawKafka, topic: str) -> None:
    answer = describe(client, [])
    names = [each.name or "" for each in answer.topics]
    assert topic in names
    assert names == sorted(names)


@pytest.mark.requirement("R4.25")
@pytest.mark.trap(46)
@pytest.mark.parametrize("version", [1, -1, 100])
def test_other_versions_are_not_served(node: NodeProcess, version: int) -> None:
    """The route says 0..0; like every API but ApiVersions, asking for another one ends the connection."""
    with RawKafka(node.kafka) as client:
        client.send(hand_made(75, version, 1, b"\xff\xff\x00\x01" + struct.pack(">ibB", 100, -1, 0)))
        assert client.socket.recv(1) == b""


@pytest.mark.parametrize(("topic", "partition"), [("nobody-asked-for-this", 0), (None, -1)])
def test_a_cursor_that_leads_nowhere_is_refused_for_each_topic(
    client: RawKafka, name: str, topic: str | None, partition: int
) -> None:
    client.create_topic(name, 2)
    answer = describe(client, [name, "zzz"], cursor=Cursor(topic or name, partition))
    codes = [(row.name, row.error_code, row.partitions) for row in answer.topics]
    assert codes == [(name, ErrorCode.INVALID_REQUEST, []), ("zzz", ErrorCode.INVALID_REQUEST, [])]
