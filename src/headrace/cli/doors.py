"""Producing and consuming through any door: the port that `produce` and `consume` are written against.

Each door's client is imported only when its door is asked for.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from headrace.errors import UnsupportedOperation

Door = Literal["kafka", "rustlog", "mlog", "logjam"]
Acks = Literal["0", "1", "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class Delivery(msgspec.Struct, frozen=True):
    """Where a record went."""

    partition: int
    offset: int


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it came out of the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where reading begins: at an offset, at the beginning, or at what comes next."""

    offset: int | None = None
    is_beginning: bool = False


class Writer(Protocol):
    deliveries: list[Delivery]
    """One per record that was taken, in the order of the answers."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        partition: int | None,
    ) -> None: ...

    def finish(self) -> None:
        """Wait for every answer; raises for the first record that was not taken."""
        ...


class Reader(Protocol):
    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        """Records as they come; without `is_following`, until every partition has been read to its end."""
        ...

    def close(self) -> None: ...


def open_writer(door: Door, address: str, *, acks: Acks, codec: Codec) -> Writer:
    if door == "kafka":
        from headrace.cli.kafka import KafkaWriter

        return KafkaWriter(address, acks=acks, codec=codec)
    raise UnsupportedOperation(f"produce does not go through the {door} door; use --door kafka")


def open_reader(door: Door, address: str, *, group: str | None, start: Start, is_committed_only: bool) -> Reader:
    if door == "kafka":
        from headrace.cli.kafka import KafkaReader

        return KafkaReader(address, group=group, start=start, is_committed_only=is_committed_only)
    raise UnsupportedOperation(f"consume does not go through the {door} door; use --door kafka")
