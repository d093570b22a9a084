"""Configs to set and to ask for: real ones with good and bad values, and made-up ones."""

from typing import Final

from tests.support.same_as_kafka.world import World

TOPIC, BROKER, GROUP = 2, 4, 32
KINDS: Final = frozenset((TOPIC, BROKER, 8, 16, GROUP))
"""With loggers and client metrics, which headrace does not have."""

# No limit of a message is below that of a marker: transactions would never end in Kafka.
_TOPIC_VALUES: Final = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete, compact", "nonsense", ""),
    "compression.type": ("producer", "nonsense"),
    "delete.retention.ms": ("0", "1000", "-1", "soon"),
    "file.delete.delay.ms": ("0", "60000", "-1"),
    "flush.messages": ("1", "9223372036854775807", "0"),
    "flush.ms": ("0", "1000", "-1"),
    "index.interval.bytes": ("0", "4096", "-1"),
    "max.compaction.lag.ms": ("1", "9223372036854775807", "0"),
    "max.message.bytes": ("100", "1000", "2000000", "-1", "1.5"),
    "message.timestamp.after.max.ms": ("0", "3600000", "-1"),
    "message.timestamp.before.max.ms": ("0", "3600000", "-1"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "min.cleanable.dirty.ratio": ("0", "0.5", "1", "1.5", "x"),
    "min.compaction.lag.ms": ("0", "1000", "-1"),
    "min.insync.replicas": ("1", "0"),
    "preallocate": ("true", "false", "yes"),
    "retention.bytes": ("-1", "100000000", "-2"),
    "retention.ms": ("-1", "604800000", "360000000", "-2", "1e3", " 5000000 "),
    "segment.bytes": ("1048576", "1073741824", "13", "x"),
    "segment.index.bytes": ("1024", "10485760", "3"),
    "segment.jitter.ms": ("0", "1000", "-1"),
    "segment.ms": ("1", "604800000", "0"),
    "unclean.leader.election.enable": ("true", "false"),
    "no.such.config": ("1",),
}
_GROUP_VALUES: Final = {
    "consumer.session.timeout.ms": ("45000", "50000", "60000", "1", "60001", "x"),
    "consumer.heartbeat.interval.ms": ("5000", "6000", "15000", "1", "15001"),
    "no.such.config": ("1",),
}


def draw_config(world: World, resource_type: int = TOPIC) -> tuple[str, str | None]:
    values = _GROUP_VALUES if resource_type == GROUP else _TOPIC_VALUES
    name = world.random.choice(list(values))
    return name, None if world.is_odd(0.03) else world.random.choice(values[name])


def draw_resource(world: World) -> tuple[int, str]:
    kind = world.random.choice([TOPIC, TOPIC, TOPIC, GROUP, GROUP, BROKER, 0, 3, 99])
    if kind == TOPIC:
        return kind, world.topic_name()
    if kind == GROUP:
        return kind, world.group_name()
    if kind == BROKER:
        return kind, world.random.choice(["", "7", "x"])
    return kind, "word"
