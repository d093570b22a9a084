"""One node's settings: the sections its packages declare, side by side.

Each package owns its section's fields, bounds and sentences; this module only puts them together and says under
which dotted names they appear. The node hands each part its own section and nothing else.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.admin.settings import AdminSettings
from headrace.blob.settings import ObjectStoreSettings
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.transactions.settings import TransactionCoordinatorSettings
from headrace.config.server import ServerSettings
from headrace.config.topic_defaults import TopicDefaultSettings
from headrace.control.settings import ControlSettings
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.mlog.settings import MlogSettings
from headrace.doors.quic.settings import QuicSettings
from headrace.doors.rustlog.settings import RustLogSettings
from headrace.doors.settings import DoorName, ListenerSettings
from headrace.log.settings import LogSettings
from headrace.tier.settings import TierSettings
from headrace.transforms.settings import WasmSettings


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node was told, one section per part."""

    server: ServerSettings
    control: ControlSettings
    security: SecuritySettings
    topic_defaults: TopicDefaultSettings
    log: LogSettings
    object_store: ObjectStoreSettings
    tier: TierSettings
    group: GroupSettings
    transaction: TransactionCoordinatorSettings
    wasm: WasmSettings
    kafka: KafkaSettings
    quic: QuicSettings
    rustlog: RustLogSettings
    mlog: MlogSettings
    logjam: LogjamSettings
    admin: AdminSettings
    listeners: tuple[ListenerSettings, ...] = ()
    """All that are opened: each door's own, and those beside it."""

    def listeners_of(self, door: DoorName) -> tuple[ListenerSettings, ...]:
        return tuple(each for each in self.listeners if each.door == door)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """How the fields of one section are called outside."""

    prefix: str
    names: Mapping[str, str] = {}
    """Fields whose key does not follow from prefix and name."""

    def key_of(self, field: str) -> str:
        if field in self.names:
            return self.names[field]
        dotted = field.replace("_", ".")
        return f"{self.prefix}.{dotted}" if self.prefix else dotted


def _door(name: str, *, prefix: str | None = None) -> Section:
    return Section(
        prefix=name if prefix is None else prefix,
        names={"listen": f"listen.{name}", "advertised": f"advertised.{name}"},
    )


SECTIONS: Final[Mapping[str, Section]] = {
    "server": Section(prefix=""),
    "control": Section(prefix=""),
    "security": Section(
        prefix="security",
        names={
            "allow_everyone_if_no_acl_found": "allow.everyone.if.no.acl.found",
            "reauth_max_ms": "connections.max.reauth.ms",
        },
    ),
    "topic_defaults": Section(prefix=""),
    "log": Section(prefix=""),
    "object_store": Section(prefix="object_store"),
    "tier": Section(prefix="tier", names={"cache_read_size_bytes": "cache.read.size.bytes"}),
    "group": Section(
        prefix="group",
        names={
            "session_timeout_ms_min": "group.min.session.timeout.ms",
            "session_timeout_ms_max": "group.max.session.timeout.ms",
            "members_max": "group.max.size",
            "consumer_heartbeat_interval_ms_min": "group.consumer.min.heartbeat.interval.ms",
            "consumer_heartbeat_interval_ms_max": "group.consumer.max.heartbeat.interval.ms",
            "consumer_session_timeout_ms_min": "group.consumer.min.session.timeout.ms",
            "consumer_session_timeout_ms_max": "group.consumer.max.session.timeout.ms",
            "offsets_topic_partitions": "offsets.topic.num.partitions",
            "offsets_retention_minutes": "offsets.retention.minutes",
            "offset_metadata_bytes_max": "offset.metadata.max.bytes",
        },
    ),
    "transaction": Section(
        prefix="transaction",
        names={
            "timeout_ms_max": "transaction.max.timeout.ms",
            "id_expiration_ms": "transactional.id.expiration.ms",
            "topic_partitions": "transaction.state.log.num.partitions",
        },
    ),
    "wasm": Section(prefix="wasm"),
    # Kafka's brokers have names for these already, without a prefix.
    "kafka": _door("kafka", prefix=""),
    "quic": _door("quic"),
    "rustlog": _door("rustlog"),
    "mlog": _door("mlog"),
    "logjam": Section(
        prefix="logjam",
        names={
            "listen_router": "listen.logjam.router",
            "listen_pull": "listen.logjam.pull",
            "listen_pub": "listen.logjam.pub",
            "listen_live": "listen.logjam.live",
            "strict_names": "logjam.strict_names",
        },
    ),
    "admin": Section(
        prefix="admin",
        names={"listen": "listen.admin", "advertised": "advertised.admin", "listen_grpc": "listen.grpc"},
    ),
}


def sections() -> tuple[msgspec.structs.FieldInfo, ...]:
    """Fields of `NodeSettings` that are sections of keys. Listeners are not: their keys carry names that people make up."""
    return tuple(field for field in msgspec.structs.fields(NodeSettings) if field.name in SECTIONS)
