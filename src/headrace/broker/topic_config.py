"""Topic configuration by Kafka's names: what each key means, what it may be, and the policy it adds up to.

Every key here is real. A key that is not here is refused by name, never silently accepted.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace.errors import Invalid, suggest
from headrace.log.policy import Durability, TopicPolicy

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key a topic may override."""

    name: str
    default: str
    kind: str
    """One of `int`, `long`, `boolean`, `double`, `string`, `list`: what DescribeConfigs calls its type."""
    check: Callable[[str], None]
    doc: str


def _integer(low: int, high: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        # Not whatever int() takes: others read this text too, and know neither "1_000" nor the digits of all scripts.
        if not _WHOLE.fullmatch(text):
            raise Invalid(f"{text!r} is not a whole number")
        value = int(text)
        if not low <= value <= high:
            raise Invalid(f"{value} is outside {low}..{high}")

    return check


def _choice(*allowed: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in allowed:
            raise Invalid(f"{text!r} is none of {', '.join(allowed)}")

    return check


def _choices(*allowed: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        for word in text.split(","):
            _choice(*allowed)(word.strip())

    return check


def _boolean(text: str) -> None:
    if text.strip().lower() not in ("true", "false"):
        raise Invalid(f"{text!r} is neither true nor false")


def _ratio(text: str) -> None:
    if not _DECIMAL.fullmatch(text.strip()) or not 0 <= float(text) <= 1:
        raise Invalid(f"{text!r} is no number from 0 to 1")


def _key(name: str, default: str, kind: str, check: Callable[[str], None], doc: str) -> ConfigKey:
    return ConfigKey(name=name, default=default, kind=kind, check=check, doc=doc)


_KEYS: Final = (
    _key("cleanup.policy", "delete", "list", _choices("delete", "compact"), "Drop old records, keep the last per key, or both"),
    _key("compression.type", "producer", "string", _choice("producer"), "Batches are kept as the producer compressed them"),
    _key("delete.retention.ms", "86400000", "long", _integer(0, _LONG_MAX), "How long a tombstone outlives compaction"),
    _key("durability", "wal", "string", _choice(*Durability), "What must have a record before it is acknowledged"),
    _key("max.message.bytes", "1048588", "int", _integer(0, _INT_MAX), "Largest batch taken"),
    _key("message.timestamp.after.max.ms", "3600000", "long", _integer(0, _LONG_MAX), "How far ahead a record's time may be"),
    _key("message.timestamp.before.max.ms", str(_LONG_MAX), "long", _integer(0, _LONG_MAX), "How old a record's time may be"),
    _key("message.timestamp.type", "CreateTime", "string", _choice("CreateTime", "LogAppendTime"), "Whose clock records carry"),
    _key("min.compaction.lag.ms", "0", "long", _integer(0, _LONG_MAX), "Records younger than this are not compacted"),
    _key("min.insync.replicas", "1", "int", _integer(1, 1), "One WAL copy is all there is until replication is configured"),
    _key("retention.bytes", "-1", "long", _integer(-1, _LONG_MAX), "Size a partition is cut back to; -1 is unlimited"),
    _key("retention.ms", "604800000", "long", _integer(-1, _LONG_MAX), "Age at which records are dropped; -1 keeps them"),
)  # fmt: skip

TOPIC_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}

_TOLERATED: Final[Mapping[str, Callable[[str], None]]] = {
    "file.delete.delay.ms": _integer(0, _LONG_MAX),
    "flush.messages": _integer(1, _LONG_MAX),
    "flush.ms": _integer(0, _LONG_MAX),
    "index.interval.bytes": _integer(0, _INT_MAX),
    "max.compaction.lag.ms": _integer(1, _LONG_MAX),
    "min.cleanable.dirty.ratio": _ratio,
    "preallocate": _boolean,
    "segment.bytes": _integer(14, _INT_MAX),
    "segment.index.bytes": _integer(4, _INT_MAX),
    "segment.jitter.ms": _integer(0, _LONG_MAX),
    "segment.ms": _integer(1, _LONG_MAX),
    "unclean.leader.election.enable": _boolean,
}
"""Keys about Kafka's segment files, which headrace does not have. Connect, Streams and others set them on the topics
they create, so refusing them would refuse those tools; they are checked as Kafka checks them, stored, shown, and mean nothing
here."""


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Raise `Invalid`, naming the key, unless every override is known and within bounds."""
    for name, text in overrides.items():
        key = TOPIC_CONFIG_KEYS.get(name)
        check = _TOLERATED.get(name) if key is None else key.check
        if check is None:
            raise Invalid(f"unknown topic config {name!r}{suggest(name, TOPIC_CONFIG_KEYS)}")
        try:
            check(text)
        except Invalid as error:
            raise Invalid(f"{name}: {error}") from error


def is_without_effect(name: str) -> bool:
    return name in _TOLERATED


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
    )
