"""Key paths: exactly those of the schema, safe for any name, and readable back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import keys
from headrace.errors import Invalid, InvalidName

names = st.text(min_size=1).filter(lambda text: not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text))
numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("path", "expected", "parts"),
    [
        pytest.param(
            keys.broker("broker-007"),
            "/brokers/registered/broker-007",
            keys.BrokerKey("broker-007"),
            marks=pytest.mark.requirement("R3.21"),
        ),
        pytest.param(
            keys.topic_config("orders"),
            "/topics/orders/config",
            keys.TopicConfigKey("orders"),
            marks=pytest.mark.requirement("R3.22"),
        ),
        pytest.param(
            keys.leader("orders", 12),
            "/topics/orders/partitions/12/leader",
            keys.LeaderKey("orders", 12),
            marks=pytest.mark.requirement("R3.23"),
        ),
        pytest.param(
            keys.segment("orders", 12, 4711),
            "/topics/orders/partitions/12/segments/00000000000000004711",
            keys.SegmentKey("orders", 12, 4711),
            marks=pytest.mark.requirement("R3.25"),
        ),
        pytest.param(
            keys.consumer_offset("billing", "orders", 12),
            "/consumer_groups/billing/offsets/orders/12",
            keys.ConsumerOffsetKey("billing", "orders", 12),
            marks=pytest.mark.requirement("R3.28"),
        ),
        pytest.param(
            keys.wasm_module("pii_scrubber_v1"),
            "/wasm/modules/pii_scrubber_v1",
            keys.WasmModuleKey("pii_scrubber_v1"),
            marks=pytest.mark.requirement("R3.29"),
        ),
        (keys.ceiling("t", 0), "/topics/t/partitions/0/ceiling", keys.CeilingKey("t", 0)),
        (keys.log_start("t", 0), "/topics/t/partitions/0/log_start", keys.LogStartKey("t", 0)),
        (keys.wal_end("t", 0), "/topics/t/partitions/0/wal_end", keys.WalEndKey("t", 0)),
        (keys.broker_identity("b"), "/headrace/brokers/b", keys.BrokerIdentityKey("b")),
        (keys.CLUSTER, "/headrace/cluster", keys.ClusterKey()),
        (keys.ACTIVE_CONTROLLER, "/headrace/controller", keys.ActiveControllerKey()),
        (keys.controller("c/1"), "/headrace/controllers/c%2F1", keys.ControllerKey("c/1")),
        (keys.NEXT_PRODUCER_ID, "/headrace/counters/producer_id", keys.CounterKey("producer_id")),
        (keys.tier_object(5), "/headrace/objects/00000000000000000005", keys.TierObjectKey(5)),
        (keys.user("al/ice"), "/security/users/al%2Fice", keys.UserKey("al/ice")),
        (keys.access_rule("0a1b"), "/security/acls/0a1b", keys.AccessRuleKey("0a1b")),
        (keys.deleted_topic(b"\x01\xff"), "/headrace/deleted_topics/01ff", keys.DeletedTopicKey(b"\x01\xff")),
    ],
)
def test_paths_are_those_of_the_schema(path: str, expected: str, parts: keys.Key) -> None:
    assert path == expected
    assert keys.parse(path) == parts


@given(names, names, numbers, offsets)
def test_any_name_survives_the_way_there_and_back(name: str, group: str, partition: int, offset: int) -> None:
    assert keys.parse(keys.topic_config(name)) == keys.TopicConfigKey(name)
    assert keys.parse(keys.segment(name, partition, offset)) == keys.SegmentKey(name, partition, offset)
    path = keys.consumer_offset(group, name, partition)
    assert keys.parse(path) == keys.ConsumerOffsetKey(group, name, partition)
    assert path.isascii()


@given(names, names, numbers)
def test_a_topics_range_holds_its_own_keys_and_no_others(name: str, other: str, partition: int) -> None:
    for path in (keys.topic_config(other), keys.leader(other, partition), keys.segment(other, partition, 7)):
        assert (path in keys.topic(name)) == (name == other)


@given(offsets, offsets)
def test_segments_sort_by_offset(first: int, second: int) -> None:
    assert (keys.segment("t", 0, first) < keys.segment("t", 0, second)) == (first < second)
    assert keys.segment("t", 1, first) not in keys.segments("t", 10)


@pytest.mark.parametrize(
    "path", ["", "/", "/topics/t", "/topics/t/partitions/x/leader", "/headrace/deleted_topics/zz", "/other/config"]
)
def test_a_foreign_path_is_nobodys_key(path: str) -> None:
    assert keys.parse(path) is None


def test_names_and_numbers_without_a_path_are_refused() -> None:
    with pytest.raises(InvalidName):
        keys.topic_config("")
    with pytest.raises(InvalidName):
        keys.topic_config("\ud800")
    with pytest.raises(Invalid):
        keys.segment("t", 0, -1)
