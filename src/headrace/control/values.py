"""What the metastore's bytes mean: Protobuf at rest, shown as JSON to people."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from headrace.control import keys
from headrace.control import values_pb2 as pb
from headrace.errors import Corrupted, Invalid
from headrace.ids import TopicId

M = TypeVar("M", bound=Message)

RETENTION_MS: Final = "retention.ms"
DURABILITY: Final = "durability"
WASM_MODULE_ID: Final = "wasm.module.id"

MESSAGES: Final[Mapping[type[keys.Key], type[Message]]] = {
    keys.BrokerKey: pb.BrokerRegistration,
    keys.BrokerIdentityKey: pb.BrokerIdentity,
    keys.TopicConfigKey: pb.TopicConfig,
    keys.LeaderKey: pb.PartitionLeader,
    keys.CeilingKey: pb.PartitionOffset,
    keys.LogStartKey: pb.PartitionOffset,
    keys.WalEndKey: pb.PartitionOffset,
    keys.SegmentKey: pb.Segment,
    keys.ConsumerOffsetKey: pb.ConsumerOffset,
    keys.GroupConfigKey: pb.GroupConfig,
    keys.WasmModuleKey: pb.WasmModule,
    keys.ClusterKey: pb.ClusterIdentity,
    keys.ActiveControllerKey: pb.ActiveController,
    keys.ControllerKey: pb.ControllerRegistration,
    keys.TakeoverKey: pb.Takeover,
    keys.CounterKey: pb.Counter,
    keys.TierObjectKey: pb.TierObject,
    keys.DeletedTopicKey: pb.DeletedTopic,
    keys.AccessRuleKey: pb.AccessRule,
    keys.UserKey: pb.User,
    keys.QuotaKey: pb.Quota,
}
"""The message under each kind of key."""


def encode(message: Message) -> bytes:
    """The same message gives the same bytes, maps included, so that values can be compared."""
    return message.SerializeToString(deterministic=True)


def decode(kind: type[M], value: bytes) -> M:
    try:
        return kind.FromString(value)
    except DecodeError as error:
        raise Corrupted(f"metastore value is not a {kind.DESCRIPTOR.name}: {error}") from error


def show(path: str, value: bytes) -> dict[str, Any]:
    """A stored value as the JSON object that people read; enums by name, bytes as Base64."""
    key = keys.parse(path)
    if key is None:
        raise Invalid(f"{path!r} is not a path of the metastore")
    message = decode(MESSAGES[type(key)], value)
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def topic_config(
    topic_id: TopicId, *, partitions: int, overrides: Mapping[str, str], created_ms: int
) -> pb.TopicConfig:
    """The overrides decide; the fields that other readers of the schema know are derived from them here."""
    config = pb.TopicConfig(
        partitions=partitions,
        topic_id=topic_id,
        wasm_module_id=overrides.get(WASM_MODULE_ID, ""),
        durability=overrides.get(DURABILITY, ""),
        overrides=overrides,
        created_ms=created_ms,
    )
    if RETENTION_MS in overrides:
        try:
            config.retention_ms = int(overrides[RETENTION_MS])
        except ValueError as error:
            raise Invalid(f"{RETENTION_MS}={overrides[RETENTION_MS]!r} is not a number") from error
    return config
