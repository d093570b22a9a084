"""What a node is given from outside: time, chance, disk, metastore, bucket, doors.

`real_parts` are those of `headrace up`. A simulation gives its own, and the same node runs under virtual time, with faults
that one seed repeats.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.blob.open import bare_store
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.broker.services import Broker
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock, SystemClock
from headrace.config.settings import NodeSettings
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, Registered
from headrace.control.metastore import Metastore
from headrace.disk import OS_DISK, Disk
from headrace.doors.kafka.server import KafkaDoor
from headrace.doors.logjam.server import LogjamDoor
from headrace.doors.mlog.server import MlogDoor
from headrace.doors.rustlog.server import RustLogDoor
from headrace.log.wal.flusher import FlusherKind, fastest_flusher
from headrace.node.data_dir import DataDir
from headrace.node.metastore import open_metastore
from headrace.tier.commits import Sequencing

if TYPE_CHECKING:
    from headrace.doors.quic.server import QuicDoor


class Directory(Protocol):
    """The node's own directory, held by one process at a time."""

    path: Path
    former_umask: int

    def open(self) -> None: ...

    def publish(self, endpoints: Mapping[str, tuple[str, int]]) -> None: ...

    def close(self) -> None: ...


class Door(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class OpenQuic(Protocol):
    def __call__(self, settings: NodeSettings, broker: Broker, *, frames: "KafkaDoor", application: Any) -> "QuicDoor":
        """`frames` is the door whose protocol comes on streams, `application` what answers HTTP (Any: ASGI's callable)."""
        ...


class OpenMetastore(Protocol):
    def __call__(self, settings: NodeSettings, *, clock: Clock) -> Awaitable[Metastore]: ...


class Register(Protocol):
    def __call__(self, cluster: Cluster, name: str, endpoint: pb.BrokerRegistration) -> Awaitable[Registered]:
        """Take the next incarnation of this broker, which fences the one before; the cluster writes under it from then on."""
        ...


async def register_alone(cluster: Cluster, name: str, endpoint: pb.BrokerRegistration) -> Registered:
    return await cluster.register(name, endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    clock: Clock
    chance: Chance
    disk: Disk
    flusher: FlusherKind
    directory: Callable[[Path], Directory]
    metastore: OpenMetastore
    blobs: Callable[[ObjectStoreSettings, Clock], BlobStore]
    """The bare store: the node adds patience and counting."""
    doors: Sequence[Callable[[NodeSettings, Broker], Door]]
    """In the order in which they open."""
    is_shared: bool = False
    """Whether the metastore is that of several brokers: then this one leads what it is given."""
    register: Register = register_alone
    silent_ms: Callable[[], int] | None = None
    """For how long no controller has heard this broker, where there are controllers."""
    quic: OpenQuic | None = None
    """Opened last: it serves what others answer."""
    sequence: Sequencing | None = None
    """Gives commits their numbers, where several brokers commit; a node without it counts them itself."""
    watches_neighbours: bool = False
    """Whether it keeps a connection to every other broker, to see at once when one ends."""
    has_admin: bool = True
    """Whether `/health` and `/metrics` are served."""


def real_parts() -> NodeParts:
    return NodeParts(
        clock=SystemClock(),
        chance=SYSTEM_CHANCE,
        disk=OS_DISK,
        flusher=fastest_flusher(),
        directory=DataDir,
        metastore=open_metastore,
        blobs=bare_store,
        doors=(open_kafka, open_rustlog, open_mlog, open_logjam),
        quic=open_quic,
    )


def open_kafka(settings: NodeSettings, broker: Broker) -> Door:
    return KafkaDoor(
        settings.kafka,
        broker,
        settings.listeners_of("kafka"),
        owner_directory=Path(settings.server.data_dir),
    )


def open_quic(settings: NodeSettings, broker: Broker, *, frames: KafkaDoor, application: Any) -> "QuicDoor":
    # Only here: a node without this door does not load QUIC.
    from headrace.doors.quic.server import QuicDoor

    (listener,) = settings.listeners_of("quic")
    return QuicDoor(
        settings.quic,
        broker,
        listener,
        new_connection=frames.new_connection,
        application=application,
        directory=Path(settings.server.data_dir),
    )


def open_rustlog(settings: NodeSettings, broker: Broker) -> Door:
    return RustLogDoor(settings.rustlog, broker, settings.listeners_of("rustlog"))


def open_mlog(settings: NodeSettings, broker: Broker) -> Door:
    return MlogDoor(settings.mlog, broker, settings.listeners_of("mlog"))


def open_logjam(settings: NodeSettings, broker: Broker) -> Door:
    return LogjamDoor(settings.logjam, broker, settings.listeners_of("logjam"))
