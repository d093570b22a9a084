"""Topic configuration by Kafka's names: what each key means, what it may be, and the policy it adds up to.

Every key here is real. A key that is not here is refused by name, never silently accepted.
"""

from collections.abc import Mapping
from typing import Final

from headrace.broker.config_key import (
    INT_MAX,
    LONG_MAX,
    Check,
    ConfigKey,
    boolean,
    checked_values,
    choice,
    choices,
    integer,
    module_id,
    ratio,
    text,
    throttled,
    topic_name,
)
from headrace.control.values import WASM_MODULE_ID
from headrace.log.policy import Durability, TopicPolicy
from headrace.records.schemas.value_schema import (
    KINDS,
    SCHEMA_KIND,
    SCHEMA_MESSAGE,
    SCHEMA_TEXT,
    TEXT_LENGTH_MAX,
    schema_of,
)


def _key(
    name: str, default: str, kind: str, check: Check, doc: str, broker_name: str | None = "", *, has_effect: bool = True
) -> ConfigKey:
    """`broker_name` is mostly `log.` and the topic's name for it."""
    return ConfigKey(
        name=name,
        default=default,
        kind=kind,
        check=check,
        doc=doc,
        broker_name=f"log.{name}" if broker_name == "" else broker_name,
        is_default_named=name != "retention.ms",  # Kafka's default is in hours.
        has_effect=has_effect,
    )


_SEGMENTS: Final = "Accepted for tools that set it; there are no segment files here"
_REPLICAS: Final = "Accepted for tools that set it; object storage holds the copies"
_COMPRESSION: Final = "Accepted for tools that set it; batches are kept as the producer compressed them"
_TIERING: Final = "Every topic is in object storage; there is nothing to switch"


def _idle(
    name: str, default: str, kind: str, check: Check, doc: str = _SEGMENTS, broker_name: str | None = ""
) -> ConfigKey:
    """Checked as Kafka checks it, stored, shown, and without meaning here."""
    return _key(name, default, kind, check, doc, broker_name, has_effect=False)


_KEYS: Final = (
    _key("cleanup.policy", "delete", "list", choices("delete", "compact"), "Drop old records, keep the last per key, or both; empty keeps everything"),
    _key("compression.type", "producer", "string", choice("producer"), "Batches are kept as the producer compressed them", "compression.type"),
    _key("delete.retention.ms", "86400000", "long", integer(0, LONG_MAX), "How long a tombstone outlives compaction", "log.cleaner.delete.retention.ms"),
    _key("durability", "wal", "string", choice(*Durability), "What must have a record before it is acknowledged", "default.durability"),
    _key("max.message.bytes", "1048588", "int", integer(0, INT_MAX), "Largest batch taken", "message.max.bytes"),
    _key("message.timestamp.after.max.ms", "3600000", "long", integer(0, LONG_MAX), "How far ahead a record's time may be"),
    _key("message.timestamp.before.max.ms", str(LONG_MAX), "long", integer(0, LONG_MAX), "How old a record's time may be"),
    _key("message.timestamp.type", "CreateTime", "string", choice("CreateTime", "LogAppendTime"), "Whose clock records carry"),
    _key("min.compaction.lag.ms", "0", "long", integer(0, LONG_MAX), "Records younger than this are not compacted", "log.cleaner.min.compaction.lag.ms"),
    _key("min.insync.replicas", "1", "int", integer(1, 1), "One WAL copy is all there is until replication is configured", "min.insync.replicas"),
    _key("retention.bytes", "-1", "long", integer(-LONG_MAX - 1, LONG_MAX), "Size a partition is cut back to; below zero it is unlimited"),
    _key("wasm.dead.letter.topic", "", "string", topic_name, "Topic for batches that the Wasm module fails on; empty refuses them", None),
    _key("wasm.module.id", "", "string", module_id, "Wasm module that changes records before they are written; empty: none", None),
    _key(SCHEMA_TEXT, "", "string", text(TEXT_LENGTH_MAX), "Schema by which the console, the API and `headrace consume` show values: Avro's JSON, or for protobuf a FileDescriptorSet in base64", None),
    _key(SCHEMA_MESSAGE, "", "string", text(TEXT_LENGTH_MAX), "With protobuf, the message of the schema that values are, as `shop.Order`", None),
    _key(SCHEMA_KIND, "", "string", choice("", *KINDS), "What `value.schema` is: avro or protobuf; empty: values are shown as they are", None),
    _key("retention.ms", "604800000", "long", integer(-1, LONG_MAX), "Age at which records are dropped; -1 keeps them"),
    _idle("compression.gzip.level", "-1", "int", integer(-1, 9), _COMPRESSION, "compression.gzip.level"),
    _idle("compression.lz4.level", "9", "int", integer(1, 17), _COMPRESSION, "compression.lz4.level"),
    _idle("compression.zstd.level", "3", "int", integer(-131072, 22), _COMPRESSION, "compression.zstd.level"),
    _idle("file.delete.delay.ms", "60000", "long", integer(0, LONG_MAX), broker_name="log.segment.delete.delay.ms"),
    _idle("flush.messages", str(LONG_MAX), "long", integer(1, LONG_MAX), broker_name="log.flush.interval.messages"),
    _idle("flush.ms", str(LONG_MAX), "long", integer(0, LONG_MAX), broker_name=None),
    _idle("follower.replication.throttled.replicas", "", "list", throttled, _REPLICAS, None),
    _idle("index.interval.bytes", "4096", "int", integer(0, INT_MAX)),
    _idle("leader.replication.throttled.replicas", "", "list", throttled, _REPLICAS, None),
    _idle("local.retention.bytes", "-2", "long", integer(-2, LONG_MAX), _TIERING),
    _idle("local.retention.ms", "-2", "long", integer(-2, LONG_MAX), _TIERING),
    _idle("max.compaction.lag.ms", str(LONG_MAX), "long", integer(1, LONG_MAX), broker_name="log.cleaner.max.compaction.lag.ms"),
    _idle("min.cleanable.dirty.ratio", "0.5", "double", ratio, broker_name="log.cleaner.min.cleanable.ratio"),
    _idle("preallocate", "false", "boolean", boolean),
    _idle("remote.log.copy.disable", "false", "boolean", choice("false"), _TIERING, None),
    _idle("remote.log.delete.on.disable", "false", "boolean", choice("false"), _TIERING, None),
    _idle("remote.storage.enable", "false", "boolean", choice("false"), _TIERING, None),
    _idle("segment.bytes", "1073741824", "int", integer(14, INT_MAX)),
    _idle("segment.index.bytes", "10485760", "int", integer(4, INT_MAX), broker_name="log.index.size.max.bytes"),
    _idle("segment.jitter.ms", "0", "long", integer(0, LONG_MAX), broker_name=None),
    _idle("segment.ms", "604800000", "long", integer(1, LONG_MAX), broker_name=None),
    _idle("unclean.leader.election.enable", "false", "boolean", boolean, _REPLICAS, "unclean.leader.election.enable"),
)  # fmt: skip

TOPIC_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}


def checked_config(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides as a topic keeps them; `Invalid`, naming the key, unless every one is known and within bounds."""
    checked = checked_values(overrides, TOPIC_CONFIG_KEYS, "topic")
    schema_of(checked)  # Its keys are checked together: each alone says little.
    return checked


def is_without_effect(name: str) -> bool:
    key = TOPIC_CONFIG_KEYS.get(name)
    return key is not None and not key.has_effect


def effective(overrides: Mapping[str, str], defaults: Mapping[str, str], name: str) -> str:
    """The value in force: the topic's own, else the broker's, else the built-in one."""
    return overrides.get(name, defaults.get(name, TOPIC_CONFIG_KEYS[name].default))


def source_of(name: str, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """Whose value is in force: `topic`, `broker` or `default`. A broker-wide value that says nothing new counts as built in."""
    if name in overrides:
        return "topic"
    return (
        "broker"
        if defaults.get(name, TOPIC_CONFIG_KEYS[name].default) != TOPIC_CONFIG_KEYS[name].default
        else "default"
    )


def policy_of(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> TopicPolicy:
    def value(name: str) -> str:
        return effective(overrides, defaults, name)

    cleanup = {word.strip() for word in value("cleanup.policy").split(",")}
    return TopicPolicy(
        durability=Durability(value("durability")),
        message_bytes_max=int(value("max.message.bytes")),
        uses_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_ms=int(value("message.timestamp.after.max.ms")),
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
        is_compacted="compact" in cleanup,
        is_deleted_by_retention="delete" in cleanup,
        delete_retention_ms=int(value("delete.retention.ms")),
        compaction_lag_min_ms=int(value("min.compaction.lag.ms")),
        wasm_module_id=value(WASM_MODULE_ID),
        wasm_dead_letter_topic=value("wasm.dead.letter.topic"),
    )
