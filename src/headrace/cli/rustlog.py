"""Producing and consuming through the RustLog door. It carries values only."""

import time
from collections.abc import Iterator
from typing import Final

from headrace.cli.doors import Gathering, Outgoing, Receipts, Received, Start, require_only_value
from headrace.cli.presence import ONCE, first_words
from headrace.clients.errors import ClientError
from headrace.clients.rustlog import BlockingRustLogClient
from headrace.errors import PartitionNotFound, Rejected
from headrace.wire.rustlog.codes import RECORDS_PER_PRODUCE_MAX, ErrorCode

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Base64 makes it a third more, and a frame holds 10 MiB."""
POLL_SECONDS: Final = 0.2


def connected(address: str) -> BlockingRustLogClient:
    """A client of a door that has answered."""
    with first_words("RustLog", address), BlockingRustLogClient(address, retry=ONCE) as client:
        client.ping()
    return BlockingRustLogClient(address)


class RustLogWriter:
    def __init__(self, address: str) -> None:
        self._client = connected(address)
        self._gathering = Gathering(self._send, records_max=RECORDS_PER_PRODUCE_MAX, bytes_max=REQUEST_BYTES_MAX)
        self._place = ("", 0)
        self.receipts = Receipts()

    def send(self, topic: str, record: Outgoing) -> None:
        require_only_value("rustlog", record)
        self._place = (topic, record.partition or 0)
        self._gathering.add(record.value or b"")

    def pause(self) -> None:
        self._gathering.pause()

    def finish(self) -> None:
        try:
            self._gathering.flush()
        finally:
            self._client.close()

    def _send(self, values: list[bytes]) -> None:
        topic, partition = self._place
        answer = self._client.produce(topic, values, partition=partition)
        self.receipts.add(partition, answer.base_offset + answer.record_count - 1, answer.record_count)


class RustLogReader:
    """Asks partition by partition; the protocol has no way to wait for records."""

    def __init__(self, address: str, *, group: str | None, start: Start) -> None:
        self._client = connected(address)
        self._group = group
        self._start = start

    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        positions = self._positions(topic, partition)
        while True:
            is_idle = True
            for index, position in list(positions.items()):
                yield from self._fetch(topic, index, positions)
                # Without records, too: a row of batches that have none is passed a part at a time.
                is_idle = is_idle and positions[index] == position
            if is_idle and not is_following:
                return
            if is_idle:
                time.sleep(POLL_SECONDS)

    def close(self) -> None:
        self._client.close()

    def _fetch(self, topic: str, index: int, positions: dict[int, int]) -> Iterator[Received]:
        try:
            answer = self._client.fetch(topic, offset=positions[index], partition=index, group_id=self._group or "")
        except ClientError as error:
            if error.code != ErrorCode.INVALID_REQUEST:
                raise
            # Nothing is wrong with the request but what it asks for: records that the node cannot take apart.
            raise Rejected(f"{topic} partition {index} from offset {positions[index]} on: {error}") from error
        try:
            for record in answer.records:
                positions[index] = record.offset + 1
                yield Received(
                    topic=topic,
                    partition=index,
                    offset=record.offset,
                    timestamp_ms=record.timestamp // 1000,
                    key=None,
                    value=record.payload,
                )
            positions[index] = answer.next_offset
        finally:
            # Also when the caller has had enough in the middle of an answer.
            if self._group is not None and answer.records:
                self._client.commit(self._group, topic, offset=positions[index], partition=index)

    def _positions(self, topic: str, partition: int | None) -> dict[int, int]:
        found = self._client.describe_topic(topic).partitions
        positions = {}
        for state in found:
            if partition in (None, state.partition):
                first = state.log_start_offset if self._start.is_beginning else state.high_watermark
                positions[state.partition] = first if self._start.offset is None else self._start.offset
        if not positions:
            raise PartitionNotFound(f"{topic} has partitions 0 to {len(found) - 1}, not {partition}")
        if self._group is not None:
            for index in positions:
                committed = self._client.committed(self._group, topic, partition=index)
                positions[index] = positions[index] if committed is None else committed
        return positions
