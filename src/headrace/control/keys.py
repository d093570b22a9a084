"""Where things are in the metastore: key paths, built and taken apart in one place.

Names from outside are percent-encoded, so a name can neither break out of its segment nor collide with another.
Start offsets are padded to twenty digits, so that the order of a range is the order of offsets; partition numbers
are written plainly, as other readers of these paths expect, and are put in order by whoever reads them.
"""

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from headrace.control.metastore import KeyRange, prefix
from headrace.errors import Invalid, InvalidName

BROKERS: Final = prefix("/brokers/registered/")
BROKER_IDENTITIES: Final = prefix("/headrace/brokers/")
TOPICS: Final = prefix("/topics/")
OBJECTS: Final = prefix("/headrace/objects/")
DELETED_TOPICS: Final = prefix("/headrace/deleted_topics/")
SECURITY: Final = prefix("/security/")
"""Who may come in, and who may do what. Every broker watches all of it."""
GROUP_CONFIGS: Final = prefix("/headrace/groups/")
CONTROLLERS: Final = prefix("/headrace/controllers/")
TAKEOVERS: Final = prefix("/headrace/takeovers/")
WASM_MODULES: Final = prefix("/wasm/modules/")
NEXT_MODULE_VERSIONS: Final = prefix("/headrace/counters/wasm.")

EXPENDABLE: Final = (BROKERS, prefix("/consumer_groups/"))
"""Entries that a node writes anew by itself: one that is damaged is dropped, and does not keep the node from starting."""

CLUSTER: Final = "/headrace/cluster"
ACTIVE_CONTROLLER: Final = "/headrace/controller"
NEXT_BROKER_NUMBER: Final = "/headrace/counters/broker_number"
NEXT_PRODUCER_ID: Final = "/headrace/counters/producer_id"
NEXT_OBJECT_ID: Final = "/headrace/counters/object_id"
NEXT_COMMIT_NUMBER: Final = "/headrace/counters/commit_number"

SEGMENTS_IN_PATH: Final = "/segments/"
"""In every key of a segment, and in no other."""

OFFSET_DIGITS: Final = 20
"""Enough for any 64-bit offset."""


def broker(broker_id: str) -> str:
    return f"/brokers/registered/{_escape(broker_id)}"


def broker_identity(broker_id: str) -> str:
    return f"/headrace/brokers/{_escape(broker_id)}"


def broker_ring(broker_id: str) -> str:
    """The random id of the broker's WAL: another one on its disk means that the old WAL is lost."""
    return f"/headrace/brokers/{_escape(broker_id)}/ring"


def broker_durability(broker_id: str) -> str:
    """The default `durability` that this broker ran with last."""
    return f"/headrace/brokers/{_escape(broker_id)}/durability"


def controller(controller_id: str) -> str:
    return f"/headrace/controllers/{_escape(controller_id)}"


def takeover(owner: str) -> str:
    """Who takes over the WAL of this broker."""
    return f"/headrace/takeovers/{_escape(owner)}"


def topic(name: str) -> KeyRange:
    """Everything kept of one topic."""
    return prefix(f"/topics/{_escape(name)}/")


def topic_in(path: str) -> str:
    """The topic that a key below `TOPICS` belongs to."""
    return unquote(path.removeprefix(TOPICS.start).partition("/")[0])


def topic_config(name: str) -> str:
    return f"/topics/{_escape(name)}/config"


def leader(topic: str, partition: int) -> str:
    return f"/topics/{_escape(topic)}/partitions/{partition}/leader"


def ceiling(topic: str, partition: int) -> str:
    """The offset below which offsets may have been assigned; kept ahead of assignment."""
    return f"/topics/{_escape(topic)}/partitions/{partition}/ceiling"


def log_start(topic: str, partition: int) -> str:
    return f"/topics/{_escape(topic)}/partitions/{partition}/log_start"


def wal_end(topic: str, partition: int) -> str:
    """Records below this offset were readable once the WAL had them, whatever the topic demands now."""
    return f"/topics/{_escape(topic)}/partitions/{partition}/wal_end"


def segment(topic: str, partition: int, start: int) -> str:
    return f"/topics/{_escape(topic)}/partitions/{partition}/segments/{_pad(start)}"


def segments(topic: str, partition: int) -> KeyRange:
    """The segments of a partition, in offset order."""
    return prefix(f"/topics/{_escape(topic)}/partitions/{partition}/segments/")


def consumer_offset(group: str, topic: str, partition: int) -> str:
    return f"/consumer_groups/{_escape(group)}/offsets/{_escape(topic)}/{partition}"


def group_config(group: str) -> str:
    """What an administrator has set for one group, which need not exist."""
    return f"/headrace/groups/{_escape(group)}/config"


def wasm_module(module_id: str) -> str:
    return f"/wasm/modules/{_escape(module_id)}"


def next_module_version(name: str) -> str:
    """The counter of a module's versions: none is given twice."""
    return f"/headrace/counters/wasm.{_escape(name)}"


def tier_object(object_id: int) -> str:
    return f"/headrace/objects/{_pad(object_id)}"


def deleted_topic(topic_id: bytes) -> str:
    return f"/headrace/deleted_topics/{topic_id.hex()}"


def access_rule(digest: str) -> str:
    """One rule; `digest` is made of all it says, so that nobody can have it twice."""
    return f"/security/acls/{_escape(digest)}"


def user(name: str) -> str:
    return f"/security/users/{_escape(name)}"


def quota(*, user: str | None = None, client: str | None = None, ip: str | None = None) -> str:
    """Limits of what is named; an empty name is the default, for which a bare star stands."""
    named = (("user", user), ("client", client), ("ip", ip))
    parts = [f"{kind}/{_escape(name) if name else '*'}" for kind, name in named if name is not None]
    return "/security/quotas/" + "/".join(parts)


SECURITY_DECOY: Final = "/security/decoy"
"""Random bytes, made once: what unknown users are told is made of them."""


class BrokerKey(msgspec.Struct, frozen=True, gc=False):
    broker_id: str


class BrokerIdentityKey(msgspec.Struct, frozen=True, gc=False):
    broker_id: str


class TopicConfigKey(msgspec.Struct, frozen=True, gc=False):
    topic: str


class LeaderKey(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int


class CeilingKey(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int


class LogStartKey(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int


class WalEndKey(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int


class SegmentKey(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    start: int


class ConsumerOffsetKey(msgspec.Struct, frozen=True, gc=False):
    group: str
    topic: str
    partition: int


class GroupConfigKey(msgspec.Struct, frozen=True, gc=False):
    group: str


class WasmModuleKey(msgspec.Struct, frozen=True, gc=False):
    module_id: str


class ClusterKey(msgspec.Struct, frozen=True, gc=False):
    pass


class ActiveControllerKey(msgspec.Struct, frozen=True, gc=False):
    pass


class ControllerKey(msgspec.Struct, frozen=True, gc=False):
    controller_id: str


class TakeoverKey(msgspec.Struct, frozen=True, gc=False):
    owner: str


class CounterKey(msgspec.Struct, frozen=True, gc=False):
    name: str


class TierObjectKey(msgspec.Struct, frozen=True, gc=False):
    object_id: int


class DeletedTopicKey(msgspec.Struct, frozen=True, gc=False):
    topic_id: bytes


class AccessRuleKey(msgspec.Struct, frozen=True, gc=False):
    digest: str


class UserKey(msgspec.Struct, frozen=True, gc=False):
    name: str


class QuotaKey(msgspec.Struct, frozen=True, gc=False):
    """An empty name is the default."""

    user: str | None = None
    client: str | None = None
    ip: str | None = None


Key = (
    BrokerKey
    | BrokerIdentityKey
    | TopicConfigKey
    | LeaderKey
    | CeilingKey
    | LogStartKey
    | WalEndKey
    | SegmentKey
    | ConsumerOffsetKey
    | GroupConfigKey
    | WasmModuleKey
    | ClusterKey
    | ActiveControllerKey
    | ControllerKey
    | TakeoverKey
    | CounterKey
    | TierObjectKey
    | DeletedTopicKey
    | AccessRuleKey
    | UserKey
    | QuotaKey
)


def parse(path: str) -> Key | None:
    """What a path is the key of; None for a path that none of the functions above could have made."""
    try:
        parts = path.split("/")
        return _parse_security(parts) if path in SECURITY else _parse(parts)
    except ValueError:
        return None


def _parse(parts: list[str]) -> Key | None:
    match parts:
        case ["", "topics", topic, *rest]:
            return _parse_topic(unquote(topic), rest)
        case ["", "consumer_groups", group, "offsets", topic, partition]:
            return ConsumerOffsetKey(unquote(group), unquote(topic), int(partition))
        case ["", "headrace", "groups", group, "config"]:
            return GroupConfigKey(unquote(group))
        case ["", "brokers", "registered", broker_id]:
            return BrokerKey(unquote(broker_id))
        case ["", "wasm", "modules", module_id]:
            return WasmModuleKey(unquote(module_id))
        case ["", "headrace", "brokers", broker_id]:
            return BrokerIdentityKey(unquote(broker_id))
        case ["", "headrace", "cluster"]:
            return ClusterKey()
        case ["", "headrace", "controller"]:
            return ActiveControllerKey()
        case ["", "headrace", "controllers", controller_id]:
            return ControllerKey(unquote(controller_id))
        case ["", "headrace", "takeovers", owner]:
            return TakeoverKey(unquote(owner))
        case ["", "headrace", "counters", name]:
            return CounterKey(name)
        case ["", "headrace", "objects", object_id]:
            return TierObjectKey(int(object_id))
        case ["", "headrace", "deleted_topics", topic_id]:
            return DeletedTopicKey(bytes.fromhex(topic_id))
        case _:
            return None


def _parse_security(parts: list[str]) -> Key | None:
    match parts:
        case ["", "security", "acls", digest]:
            return AccessRuleKey(unquote(digest))
        case ["", "security", "users", name]:
            return UserKey(unquote(name))
        case ["", "security", "quotas", "user", user]:
            return QuotaKey(user=_quota_name(user))
        case ["", "security", "quotas", "client", client]:
            return QuotaKey(client=_quota_name(client))
        case ["", "security", "quotas", "user", user, "client", client]:
            return QuotaKey(user=_quota_name(user), client=_quota_name(client))
        case ["", "security", "quotas", "ip", ip]:
            return QuotaKey(ip=_quota_name(ip))
        case _:
            return None


def _quota_name(text: str) -> str:
    return "" if text == "*" else unquote(text)


def _parse_topic(topic: str, parts: list[str]) -> Key | None:
    match parts:
        case ["config"]:
            return TopicConfigKey(topic)
        case ["partitions", partition, "leader"]:
            return LeaderKey(topic, int(partition))
        case ["partitions", partition, "ceiling"]:
            return CeilingKey(topic, int(partition))
        case ["partitions", partition, "log_start"]:
            return LogStartKey(topic, int(partition))
        case ["partitions", partition, "wal_end"]:
            return WalEndKey(topic, int(partition))
        case ["partitions", partition, "segments", start]:
            return SegmentKey(topic, int(partition), int(start))
        case _:
            return None


@lru_cache(maxsize=4096)
def _escape(name: str) -> str:
    if not name:
        raise InvalidName("a name in a metastore key is empty")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise InvalidName(f"name {name!r} is not valid Unicode") from error


def _pad(number: int) -> str:
    if number < 0:
        raise Invalid(f"{number} is negative and has no place in a metastore key")
    return f"{number:0{OFFSET_DIGITS}d}"
