"""Producing and consuming through the mlog door. It carries values only, and topics of one partition."""

from collections.abc import Iterator
from typing import Final

from headrace.cli.doors import Acks, Gathering, Outgoing, Receipts, Received, Start, require_only_value
from headrace.cli.presence import ONCE, first_words
from headrace.clients.mlog import BlockingMlogClient
from headrace.errors import Invalid, Rejected
from headrace.wire.mlog.codes import AckMode, ErrorCode
from headrace.wire.mlog.errors import RPCError

BATCH_RECORDS_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 2 * 1024 * 1024
"""Base64 makes it a third more, and a frame holds 4 MiB."""

_ACKS: Final = {"0": AckMode.NONE, "1": AckMode.LEADER, "all": AckMode.ALL}


def connected(address: str) -> BlockingMlogClient:
    """A client of doors of which one has answered."""
    addresses = address.split(",")
    with first_words("mlog", address), BlockingMlogClient(addresses, retry=ONCE) as client:
        client.find_raft_leader()
    return BlockingMlogClient(addresses)


class MlogWriter:
    def __init__(self, address: str, *, acks: Acks) -> None:
        self._client = connected(address)
        self._acks = _ACKS[acks]
        self._topic = ""
        self._gathering = Gathering(self._send, records_max=BATCH_RECORDS_MAX, bytes_max=BATCH_BYTES_MAX)
        self.receipts = Receipts()

    def send(self, topic: str, record: Outgoing) -> None:
        require_only_value("mlog", record)
        _refuse_partition(record.partition)
        self._topic = topic
        self._gathering.add(record.value or b"")

    def pause(self) -> None:
        self._gathering.pause()

    def finish(self) -> None:
        try:
            self._gathering.flush()
        finally:
            self._client.close()

    def _send(self, values: list[bytes]) -> None:
        answer = self._client.produce_batch(self._topic, values, acks=self._acks)
        self.receipts.add(0, answer.LastOffset, answer.Count)


class MlogReader:
    def __init__(self, address: str, *, group: str | None, start: Start) -> None:
        if group is None and start.offset is None and not start.is_beginning:
            raise Invalid("the mlog door cannot tell where a topic ends; use --from-beginning or --offset")
        self._client = connected(address)
        self._group = group
        self._start = start

    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        _refuse_partition(partition)
        offset = self._start.offset or 0
        if self._group is not None:
            offset = self._client.fetch_offset(topic, consumer_id=self._group)
        while True:
            try:
                entries = self._client.fetch_batch(topic, offset=offset, count_max=BATCH_RECORDS_MAX)
            except RPCError as error:
                if error.code != ErrorCode.UNKNOWN:
                    raise
                # Such as records that the node cannot take apart.
                raise Rejected(f"{topic} partition 0 from offset {offset} on: {error}") from error
            if not entries:
                break
            try:
                for entry in entries:
                    offset = entry.Offset + 1
                    yield _received(topic, entry.Offset, entry.Value)
            finally:
                # Also when the caller has had enough in the middle of a batch.
                if self._group is not None:
                    self._client.commit_offset(topic, offset=offset, consumer_id=self._group)
        if is_following:
            for entry in self._client.stream(topic, offset=offset):
                yield _received(topic, entry.Offset, entry.Value)
                if self._group is not None:
                    self._client.commit_offset(topic, offset=entry.Offset + 1, consumer_id=self._group)

    def close(self) -> None:
        self._client.close()


def _received(topic: str, offset: int, value: bytes | None) -> Received:
    # The protocol does not say when a record was written.
    return Received(topic=topic, partition=0, offset=offset, timestamp_ms=-1, key=None, value=value)


def _refuse_partition(partition: int | None) -> None:
    if partition not in (None, 0):
        raise Invalid("the mlog door knows partition 0 only")
