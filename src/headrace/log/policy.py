"""The rules of one topic as the log applies them. Frozen: a change of config replaces the whole policy."""

from enum import StrEnum
from typing import Final

import msgspec

UNLIMITED: Final = -1


class Durability(StrEnum):
    """When a record counts as kept, and so becomes readable and acknowledged."""

    WAL = "wal"
    OBJECT = "object"


class TopicPolicy(msgspec.Struct, frozen=True, kw_only=True):
    durability: Durability = Durability.WAL
    message_bytes_max: int = 1_048_588
    uses_append_time: bool = False
    timestamp_before_ms: int = 2**63 - 1
    timestamp_after_ms: int = 3_600_000
    retention_ms: int = 604_800_000
    retention_bytes: int = UNLIMITED
    is_compacted: bool = False
    is_deleted_by_retention: bool = True
    """False for `cleanup.policy=compact` alone."""
    delete_retention_ms: int = 86_400_000
    compaction_lag_min_ms: int = 0
