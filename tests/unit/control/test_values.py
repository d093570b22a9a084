"""What is stored under the keys: the schema's own examples, and ours."""

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.errors import Corrupted, Invalid
from headrace.ids import TopicId

TOPIC_ID = TopicId(bytes(range(16)))


@pytest.mark.requirement("R3.31", "R3.32")
@pytest.mark.parametrize(
    ("path", "example"),
    [
        pytest.param(
            "/brokers/registered/broker-007",
            {"host": "10.0.1.23", "port_quic": 9092, "port_rpc": 9093, "rack_id": "us-central1-a"},
            marks=pytest.mark.requirement("R3.21"),
        ),
        pytest.param(
            "/topics/events/config",
            {"partitions": 64, "retention_ms": "-1", "wasm_module_id": "pii_scrubber_v1"},
            marks=pytest.mark.requirement("R3.22"),
        ),
        pytest.param(
            "/topics/events/partitions/3/leader",
            {"broker_id": "broker-007", "leader_epoch": 142},
            marks=pytest.mark.requirement("R3.23"),
        ),
        pytest.param(
            "/topics/events/partitions/3/segments/00000000000000000000",
            {"status": "UPLOADING", "object_key": "streams/1.hr", "size_bytes": "1073741824"},
            marks=pytest.mark.requirement("R3.25", "R3.26"),
        ),
        pytest.param(
            "/consumer_groups/billing/offsets/events/3",
            {"offset": "45678", "metadata": "..."},
            marks=pytest.mark.requirement("R3.28"),
        ),
        pytest.param(
            "/wasm/modules/pii_scrubber_v1",
            {"name": "pii_scrubber", "version": "v1", "object_key": "wasm/pii_scrubber_v1.wasm"},
            marks=pytest.mark.requirement("R3.29"),
        ),
    ],
)
def test_the_schemas_examples_round_trip(path: str, example: dict[str, object]) -> None:
    """64-bit numbers are strings in Protobuf's JSON; all else is as the document prints it."""
    key = keys.parse(path)
    assert key is not None
    message = ParseDict(example, values.MESSAGES[type(key)]())
    stored = values.encode(message)
    assert values.decode(type(message), stored) == message
    assert example.items() <= values.show(path, stored).items()


@pytest.mark.requirement("R3.26")
def test_a_segment_is_in_the_wal_uploading_or_in_the_object_store() -> None:
    assert set(pb.SegmentStatus.keys()) == {"IN_WAL", "UPLOADING", "IN_OBJECT_STORE"}


def test_every_kind_of_key_has_a_message() -> None:
    assert values.MESSAGES.keys() == set(keys.Key.__args__)


@pytest.mark.parametrize("kind", list(dict.fromkeys(values.MESSAGES.values())))
def test_damaged_bytes_are_corruption(kind: type[Message]) -> None:
    with pytest.raises(Corrupted):
        values.decode(kind, b"\xff")


def test_overrides_decide_what_other_readers_see() -> None:
    overrides = {"retention.ms": "-1", "wasm.module.id": "m1", "durability": "object", "x": "y"}
    config = values.topic_config(TOPIC_ID, partitions=3, overrides=overrides, created_ms=5)
    assert (config.retention_ms, config.wasm_module_id, config.durability) == (-1, "m1", "object")
    plain = values.topic_config(TOPIC_ID, partitions=3, overrides={}, created_ms=5)
    assert not plain.HasField("retention_ms")
    with pytest.raises(Invalid):
        values.topic_config(TOPIC_ID, partitions=3, overrides={"retention.ms": "soon"}, created_ms=5)


def test_the_same_overrides_give_the_same_bytes() -> None:
    pairs = [(f"name{index}", str(index)) for index in range(20)]
    both = [
        values.encode(values.topic_config(TOPIC_ID, partitions=1, overrides=dict(order), created_ms=0))
        for order in (pairs, pairs[::-1])
    ]
    assert both[0] == both[1]


def test_a_foreign_path_cannot_be_shown() -> None:
    with pytest.raises(Invalid):
        values.show("/elsewhere", b"")
