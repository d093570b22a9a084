"""Internal topics belong to their coordinators: what clients may do with them, in one place for every door.

They are the memory of groups and transactions. Clients read them; only the coordinator writes, shortens or grows them, and
nobody deletes them. The audit's topic and that of Wasm modules' logs are such, too, but for being no coordinator's: they keep what
they have for as long as their configs say. Apache Kafka lets an administrator make one before it is needed and change its configs: so may clients
here, but what the coordinator needs of the topic stands whatever they say, and whatever an earlier version has stored.
"""

from collections.abc import Mapping
from typing import Final

from headrace.broker.access.audit import AUDIT_TOPIC
from headrace.control.values import WASM_MODULE_ID
from headrace.errors import Invalid, InvalidName

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Of coordinators."""

MODULE_LOG_TOPIC: Final = "__headrace_wasm_logs"
_MODULE_LOG_BOUNDS: Final = {"retention.ms": str(7 * 24 * 3600 * 1000), "retention.bytes": str(16 << 20)}
"""Of each partition: what modules say must not fill a bucket."""

_MESSAGE_BYTES: Final = "max.message.bytes"
_MESSAGE_BYTES_MIN: Final = 16 << 20
"""One record may hold a group of thousands."""
_AUDIT_RETENTION_MS: Final = 90 * 24 * 3600 * 1000
_FIXED: Final = {"cleanup.policy": "compact", "retention.ms": "-1"}


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS or topic in (AUDIT_TOPIC, MODULE_LOG_TOPIC)


def check_client_may(verb: str, topic: str) -> None:
    """Raise `InvalidName` if `topic` is internal; `verb` completes "clients cannot ... it"."""
    if topic == AUDIT_TOPIC:
        raise InvalidName(f"'{topic}' is the audit: clients cannot {verb} it")
    if topic == MODULE_LOG_TOPIC:
        raise InvalidName(f"'{topic}' is the log of Wasm modules: clients cannot {verb} it")
    if topic in INTERNAL_TOPICS:
        raise InvalidName(f"'{topic}' is the memory of its coordinator: clients cannot {verb} it")


def checked_overrides(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The configs that a client asks for, with what the coordinator needs put in; `Invalid` for what contradicts it."""
    if not is_internal(topic):
        return overrides
    if overrides.get(WASM_MODULE_ID):
        raise Invalid(f"{WASM_MODULE_ID}: '{topic}' is internal, and no module changes its records")
    needed = overrides_in_force(topic, overrides)
    for name, value in needed.items():
        if overrides.get(name, value) != value:
            raise Invalid(f"{name}: '{topic}' is internal, and needs {value}")
    return needed


def overrides_in_force(topic: str, stored: Mapping[str, str]) -> Mapping[str, str]:
    """Stored configs as they count: what the coordinator needs wins."""
    if topic == AUDIT_TOPIC:
        return {"retention.ms": str(_AUDIT_RETENTION_MS), **stored, "cleanup.policy": "delete"}
    if topic == MODULE_LOG_TOPIC:
        return {**_MODULE_LOG_BOUNDS, **stored, "cleanup.policy": "delete"}
    if topic not in INTERNAL_TOPICS:
        return stored
    message_bytes = max(int(stored.get(_MESSAGE_BYTES, 0)), _MESSAGE_BYTES_MIN)
    return {**stored, **_FIXED, _MESSAGE_BYTES: str(message_bytes)}
