"""What topics get when nobody says: the broker-wide defaults, under the names Kafka's brokers use for them."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

_LONG_MAX: Final = 2**63 - 1

TOPIC_KEYS: Final = {
    "log_retention_ms": "retention.ms",
    "log_retention_bytes": "retention.bytes",
    "log_cleanup_policy": "cleanup.policy",
    "log_message_timestamp_type": "message.timestamp.type",
    "message_max_bytes": "max.message.bytes",
    "default_durability": "durability",
}
"""Our field to the topic config key that it is the default of."""


class TopicDefaultSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What topics get when nobody says. A topic's own config wins."""

    default_durability: Literal["wal", "object"] = "wal"
    """What must have a record before it is acknowledged: this node's disk, or the object store as well."""

    log_retention_ms: Annotated[int, Meta(ge=-1, le=_LONG_MAX)] = 604_800_000
    """Age at which records are dropped; -1 keeps them for ever."""

    log_retention_bytes: Annotated[int, Meta(ge=-1, le=_LONG_MAX)] = -1
    """Size a partition is cut back to; -1 is unlimited."""

    log_cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """Drop old records, keep the last per key, or both."""

    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    """Whose clock records carry: the producer's or the broker's."""

    message_max_bytes: Annotated[int, Meta(ge=1, le=104_857_600)] = 1_048_588
    """Largest batch taken, after compression. Consumers must be able to fetch it."""

    def as_topic_config(self) -> dict[str, str]:
        """These defaults under the names topics know them by."""
        return {key: str(getattr(self, field)) for field, key in TOPIC_KEYS.items()}
