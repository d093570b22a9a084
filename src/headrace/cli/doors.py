"""Producing and consuming through any door: the port that `produce` and `consume` are written against.

Each door's client is imported only when its door is asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from headrace.cli.interruption import brought_to_its_end
from headrace.errors import Invalid

Door = Literal["kafka", "quic", "rustlog", "mlog", "logjam"]
Acks = Literal["0", "1", "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

LINGER_MS: Final = 5
"""Longest a record waits for others to be sent with."""

PORTS: Final[Mapping[Door, int]] = {"kafka": 9092, "quic": 9092, "rustlog": 9096, "mlog": 9095, "logjam": 9604}
"""Where each door listens unless its node is told otherwise; of Logjam's the one that takes messages."""
LOGJAM_PUB_PORT: Final = 9606

WRITE_ADDRESSES: Final[Mapping[Door, str]] = {
    door: f"localhost:{port}" for door, port in PORTS.items() if door != "kafka"
}
READ_ADDRESSES: Final[Mapping[Door, str]] = {**WRITE_ADDRESSES, "logjam": f"localhost:{LOGJAM_PUB_PORT}"}
"""Of doors on this machine; Kafka's is `--bootstrap`."""


@dataclass(slots=True)
class Receipts:
    """What became of the records sent: how many were taken, and how far each partition has come."""

    count: int = 0
    last_offsets: dict[int, int] = field(default_factory=dict)
    """Empty for a door that does not tell offsets, and for who did not wait for them."""

    def add(self, partition: int, last_offset: int | None, count: int = 1) -> None:
        """An offset of None: the sender did not wait to be told."""
        self.count += count
        if last_offset is not None:
            self.last_offsets[partition] = max(last_offset, self.last_offsets.get(partition, -1))


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One record on its way into the log."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None
    """None: the door chooses."""


@dataclass(slots=True)
class Gathering:
    """Values for a door that takes many at once: handed to `send` when there are enough, in a pause, and at the end."""

    send: Callable[[list[bytes]], None]
    records_max: int
    bytes_max: int
    _values: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, value: bytes) -> None:
        self._values.append(value)
        self._size += len(value)
        if len(self._values) == self.records_max or self._size >= self.bytes_max:
            self.pause()

    def pause(self) -> None:
        # Interrupted halfway, nobody would know whether they were taken.
        with brought_to_its_end():
            self.flush()

    def flush(self) -> None:
        """At the end: who does not want to wait for it may interrupt it."""
        if self._values:
            values, self._values, self._size = self._values, [], 0
            self.send(values)


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it came out of the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    decoded: bytes | None = None
    """The value as JSON, where the topic's schema says how."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where reading begins: at an offset, at the beginning, or at what comes next."""

    offset: int | None = None
    is_beginning: bool = False


class Writer(Protocol):
    receipts: Receipts

    def send(self, topic: str, record: Outgoing) -> None: ...

    def pause(self) -> None:
        """Nothing more comes at the moment: what waits for company goes without."""
        ...

    def finish(self) -> None:
        """Wait for every answer; raises for the first record that was not taken."""
        ...


class Reader(Protocol):
    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        """Records as they come; without `is_following`, until every partition has been read to its end."""
        ...

    def close(self) -> None: ...


def open_writer(door: Door, address: str, *, acks: Acks, codec: Codec) -> Writer:
    if door not in ("kafka", "quic") and codec != "none":
        raise Invalid(f"the {door} door takes no codec; use --door kafka")
    match door:
        case "kafka":
            from headrace.cli.kafka import KafkaWriter

            return KafkaWriter(address, acks=acks, codec=codec)
        case "quic":
            from headrace.cli.quic import quic_writer

            return quic_writer(address, acks=acks, codec=codec)
        case "rustlog":
            from headrace.cli.rustlog import RustLogWriter

            return RustLogWriter(address)
        case "mlog":
            from headrace.cli.mlog import MlogWriter

            return MlogWriter(address, acks=acks)
        case "logjam":
            from headrace.cli.logjam import LogjamWriter

            return LogjamWriter(address)


def open_reader(door: Door, address: str, *, group: str | None, start: Start, is_committed_only: bool) -> Reader:
    if door not in ("kafka", "quic") and is_committed_only:
        raise Invalid(f"the {door} door does not know transactions; use --door kafka")
    match door:
        case "kafka":
            from headrace.cli.kafka_reader import KafkaReader

            return KafkaReader(address, group=group, start=start, is_committed_only=is_committed_only)
        case "quic":
            from headrace.cli.quic import quic_reader

            return quic_reader(address, group=group, start=start, is_committed_only=is_committed_only)
        case "rustlog":
            from headrace.cli.rustlog import RustLogReader

            return RustLogReader(address, group=group, start=start)
        case "mlog":
            from headrace.cli.mlog import MlogReader

            return MlogReader(address, group=group, start=start)
        case "logjam":
            from headrace.cli.logjam import LogjamReader

            return LogjamReader(address, group=group, start=start)


def require_only_value(door: Door, record: Outgoing) -> None:
    """A record must not lose on the way what its sender gave it."""
    if record.key is not None or record.headers:
        lost = "keys" if record.key is not None else "headers"
        raise Invalid(f"the {door} door carries no {lost}; use --door kafka")
