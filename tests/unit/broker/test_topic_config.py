"""Topic configuration: every key is checked, unknown ones are refused by name, and they add up to a policy."""

import pytest

from headrace.broker.topic_config import (
    TOPIC_CONFIG_KEYS,
    checked_config,
    effective,
    is_without_effect,
    policy_of,
)
from headrace.errors import Invalid
from headrace.log.policy import Durability, TopicPolicy

LONG_MAX = str(2**63 - 1)


def test_defaults_pass_their_own_checks() -> None:
    checked_config({name: key.default for name, key in TOPIC_CONFIG_KEYS.items()})
    assert policy_of({}, {}) == TopicPolicy()


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        (
            "cleanup.policy",
            ["delete", "compact", "compact,delete", "delete, compact", "", " "],
            [",", "both", "delete;compact"],
        ),
        ("compression.type", ["producer"], ["zstd", "gzip", ""]),
        ("durability", ["wal", "object"], ["disk", "WAL", ""]),
        (
            "max.message.bytes",
            ["0", "1048588", str(2**31 - 1), " 1\n"],
            ["-1", str(2**31), "1e6", "1_000", "\u00a01", "", "\u0661"],
        ),
        ("retention.ms", ["-1", "0", LONG_MAX], ["-2", str(2**63), "forever", "1" * 5000]),
        ("retention.bytes", ["-1", "-2", "1", LONG_MAX], ["1k"]),  # Kafka sets no lower bound.
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", ""]),
        ("message.timestamp.before.max.ms", ["0", LONG_MAX], ["-1"]),
        ("message.timestamp.after.max.ms", ["0", LONG_MAX], ["-1"]),
        ("min.insync.replicas", ["1"], ["0", "2"]),
        ("delete.retention.ms", ["0"], ["-1"]),
        ("min.compaction.lag.ms", ["0"], ["-1"]),
        ("wasm.module.id", ["", "scrub_v1", "a.b-c_d_v12"], ["scrub", "_v1", "scrub_v", "a/b_v1", "x" * 101 + "_v1"]),
        ("wasm.dead.letter.topic", ["", "orders-dead"], ["a b", ".", "..", "x" * 256]),
        # Together they are tested in tests/unit/records/schemas.
        ("value.schema.type", [""], ["avro", "json"]),
        ("value.schema", [""], ['"int"', "x" * 65_537]),
        ("value.schema.message", [""], ["shop.Order", "x" * 65_537]),
    ],
)
def test_values_are_held_to_their_bounds(name: str, taken: list[str], refused: list[str]) -> None:
    for text in taken:
        checked_config({name: text})
    for text in refused:
        with pytest.raises(Invalid, match=name.replace(".", r"\.")):
            checked_config({name: text})


@pytest.mark.parametrize(
    ("name", "written", "kept"),
    [
        ("cleanup.policy", " delete , compact", "delete,compact"),
        ("retention.ms", " +5000 ", "5000"),
        ("preallocate", "TRUE ", "true"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("message.timestamp.type", " CreateTime", "CreateTime"),
    ],
)
def test_values_are_kept_in_the_spelling_that_kafka_shows(name: str, written: str, kept: str) -> None:
    assert checked_config({name: written}) == {name: kept}


def test_every_key_is_tested() -> None:
    marks = test_values_are_held_to_their_bounds.pytestmark  # type: ignore[attr-defined]
    (cases,) = (mark.args[1] for mark in marks if mark.name == "parametrize")
    assert {case[0] for case in cases} == {name for name, key in TOPIC_CONFIG_KEYS.items() if key.has_effect}


def test_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match=r"unknown topic config 'retention\.mss'; did you mean retention\.ms\?"):
        checked_config({"retention.ms": "1", "retention.mss": "1"})


def test_keys_about_files_we_do_not_have_are_taken_and_mean_nothing() -> None:
    checked_config({"segment.bytes": "1073741824", "preallocate": "True", "min.cleanable.dirty.ratio": "0.5"})
    assert is_without_effect("segment.bytes")
    assert not is_without_effect("retention.ms")
    assert policy_of({"segment.bytes": "1"}, {}) == TopicPolicy()


def test_topic_wins_over_broker_and_broker_over_built_in() -> None:
    assert effective({}, {}, "retention.ms") == "604800000"
    assert effective({}, {"retention.ms": "5"}, "retention.ms") == "5"
    assert effective({"retention.ms": "7"}, {"retention.ms": "5"}, "retention.ms") == "7"


def test_overrides_add_up_to_a_policy() -> None:
    overrides = {
        "cleanup.policy": "compact",
        "durability": "object",
        "max.message.bytes": "10",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "11",
        "message.timestamp.after.max.ms": "12",
        "retention.ms": "-1",
        "delete.retention.ms": "13",
        "min.compaction.lag.ms": "14",
    }
    assert policy_of(overrides, {"retention.bytes": "15"}) == TopicPolicy(
        durability=Durability.OBJECT,
        message_bytes_max=10,
        uses_append_time=True,
        timestamp_before_ms=11,
        timestamp_after_ms=12,
        retention_ms=-1,
        retention_bytes=15,
        is_compacted=True,
        is_deleted_by_retention=False,
        delete_retention_ms=13,
        compaction_lag_min_ms=14,
    )
    both = policy_of({"cleanup.policy": "compact, delete"}, {})
    assert (both.is_compacted, both.is_deleted_by_retention) == (True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.ms", "anything"),
        ("segment.ms", "0"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("flush.messages", "0"),
        ("preallocate", "yes"),
        ("unclean.leader.election.enable", ""),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("max.compaction.lag.ms", "-1"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "0-1"),
        ("local.retention.ms", "-3"),
        ("remote.storage.enable", "true"),
    ],
)
def test_their_values_are_checked_all_the_same(name: str, value: str) -> None:
    """Whoever reads the topic's configs parses them."""
    with pytest.raises(Invalid, match=name):
        checked_config({name: value})
