"""The rules of one topic as the log applies them. Frozen: a change of config replaces the whole policy."""

from enum import StrEnum
from types import MappingProxyType
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
    wasm_module_id: str = ""
    """The module that every client's batch goes through first; empty: none."""
    wasm_dead_letter_topic: str = ""
    """Where batches go that the module fails on; empty: they are refused."""


PLAIN_AHEAD_MS: Final = 3_600_000
"""A batch of a plain topic is plain only if its timestamps are no further ahead of this broker's clock than this."""

_PLAIN_VALUES: Final = MappingProxyType(
    {
        "durability": Durability.WAL,
        "uses_append_time": False,
        "timestamp_before_ms": 2**63 - 1,
        "is_compacted": False,
        "wasm_module_id": "",
    }
)
"""Rules that the fast append does not know, at the values that ask nothing of it."""
_NOT_OF_APPENDS: Final = frozenset(
    {
        "retention_ms",
        "retention_bytes",
        "is_deleted_by_retention",
        "delete_retention_ms",
        "compaction_lag_min_ms",
        "wasm_dead_letter_topic",
    }
)
"""Rules about records that are already in the log, or that a module did not take."""
_LIMITS: Final = frozenset({"message_bytes_max", "timestamp_after_ms"})
_SIZE_MAX: Final = 2**31 - 1


def plain_size_max(policy: TopicPolicy) -> int:
    """Size of the largest batch that needs none of the rules of `policy` to be looked at; 0 if every batch does.

    The fast append (`_append.c`) reads this number and none of the rules. A field that is not named above makes every
    batch need a look, so a rule that somebody adds to the Python path alone is never passed over: it only costs speed,
    until it is decided here what the rule means for appends.
    """
    for name in policy.__struct_fields__:
        if name in _NOT_OF_APPENDS or name in _LIMITS:
            continue
        if name not in _PLAIN_VALUES or getattr(policy, name) != _PLAIN_VALUES[name]:
            return 0
    if policy.timestamp_after_ms < PLAIN_AHEAD_MS:
        return 0
    return min(policy.message_bytes_max, _SIZE_MAX)
