"""`headrace consume` through the Kafka door, alone or as a member of a group.

Kafka's C client finds the leaders and looks after the membership of a group; it is never let near a record, for one that
it cannot unpack can end the process. Records come by `kafka_fetch`.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from headrace.cli.doors import Received, Start
from headrace.cli.kafka import TIMEOUT_SECONDS, calling, client_settings, raised
from headrace.cli.kafka_fetch import TopicFetcher
from headrace.errors import HeadraceError, OffsetOutOfRange, PartitionNotFound, TopicNotFound, Unavailable
from headrace.records.record import Record
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.fetch_response import PartitionData

_POLL_SECONDS: Final = 0.2
_FETCH_WAIT_MS: Final = 200
_COMMIT_SECONDS: Final = 5.0
"""Between two commits of what a group has read; the last comes when it is closed."""


class KafkaReader:
    """Reads a topic, alone or as a member of a group."""

    def __init__(self, bootstrap: str, *, group: str | None, start: Start, is_committed_only: bool) -> None:
        self._start = start
        self._group = group
        self._is_committed_only = is_committed_only
        self._topic = ""
        self._leaders: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        """Where to go on in each partition that is ours."""
        self._unread: set[int] | None = None
        """Partitions that are ours and not read to their end; None until we know which are ours."""
        self._committed: dict[int, int] = {}
        self._commit_at = time.monotonic() + _COMMIT_SECONDS
        self._fetcher: TopicFetcher | None = None
        self._trouble: KafkaError | None = None
        self._consumer = Consumer(
            {
                **client_settings(bootstrap),
                "group.id": group or "headrace-cli",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if is_committed_only else "read_uncommitted",
                "allow.auto.create.topics": False,
                "error_cb": self._troubled,
            }
        )

    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        self._topic = topic
        self._fetcher = TopicFetcher(topic, is_committed_only=self._is_committed_only)
        self._begin(partition)
        while is_following or self._unread is None or self._unread:
            self._look_after_membership(is_following=is_following)
            try:
                # One at a time: after each, we may have been closed, and its position is what is committed.
                for fetched in self._fetcher.fetch(self._leaders, self._positions, wait_ms=_FETCH_WAIT_MS):
                    yield from self._read_partition(fetched)
                self._commit_now_and_then()
            except Unavailable:
                # Who follows waits for the node to come back; who wants the end would wait in vain.
                if not is_following:
                    raise
                self._await_leaders()

    def close(self) -> None:
        if self._group is not None:
            # What could not be committed is read again by whoever comes next.
            with contextlib.suppress(KafkaException):
                self._commit(is_waiting=True)
        self._consumer.close()
        if self._fetcher is not None:
            self._fetcher.close()

    def _begin(self, partition: int | None) -> None:
        self._find_leaders()
        if self._group is not None:
            self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
            return
        indexes = set(self._leaders) if partition is None else {partition}
        if not indexes <= set(self._leaders):
            count = len(self._leaders)
            raise PartitionNotFound(f"{self._topic} has partitions 0 to {count - 1}, not {partition}")
        self._unread = indexes
        self._positions = {index: self._first_position(index) for index in sorted(indexes)}

    def _find_leaders(self) -> None:
        metadata = calling(lambda: self._consumer.list_topics(self._topic, timeout=TIMEOUT_SECONDS))
        found = metadata.topics[self._topic]
        if found.error is not None:
            raise raised(found.error, topic=self._topic)
        brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
        if not all(each.leader in brokers for each in found.partitions.values()):
            raise Unavailable(f"{self._topic} has partitions without a leader")
        self._leaders = {index: brokers[each.leader] for index, each in found.partitions.items()}

    def _await_leaders(self) -> None:
        time.sleep(_POLL_SECONDS)
        with contextlib.suppress(Unavailable):
            self._find_leaders()

    def _look_after_membership(self, *, is_following: bool) -> None:
        if self._group is None:
            return
        message = self._consumer.poll(0 if self._positions else _POLL_SECONDS)
        if message is not None and message.error() is not None and not message.error().retriable():
            raise raised(message.error(), topic=self._topic)
        if self._unread is None and self._trouble is not None and not is_following:
            raise raised(self._trouble)

    def _read_partition(self, fetched: PartitionData) -> Iterator[Received]:
        assert self._fetcher is not None
        partition = fetched.partition_index
        if fetched.error_code:
            self._meet(ErrorCode(fetched.error_code), partition)
            return
        for position, record in self._fetcher.records_of(fetched, self._positions[partition]):
            self._positions[partition] = position
            if record is not None:
                yield self._received(partition, record)
        if self._positions[partition] >= self._fetcher.end_of(fetched):
            (self._unread or set()).discard(partition)

    def _meet(self, error: ErrorCode, partition: int) -> None:
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicNotFound(f"no topic {self._topic!r}")
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Unavailable(f"{self._topic} partition {partition}: {error.name}")
        if self._start.offset is not None:
            raise self._out_of_range(partition)
        # Retention was faster.
        self._positions[partition] = self._edge(partition)

    def _first_position(self, partition: int) -> int:
        return self._edge(partition) if self._start.offset is None else self._start.offset

    def _edge(self, partition: int) -> int:
        first, end = self._watermarks(partition)
        return first if self._start.is_beginning else end

    def _watermarks(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        first, end = calling(lambda: self._consumer.get_watermark_offsets(place, TIMEOUT_SECONDS))
        return int(first), int(end)

    def _out_of_range(self, partition: int) -> HeadraceError:
        first, end = self._watermarks(partition)
        there = f"has offsets {first} to {end - 1}" if first < end else f"is empty and goes on at {end}"
        return OffsetOutOfRange(f"{self._topic} partition {partition} {there}, not {self._start.offset}")

    # -- as a member of a group

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        # Ours from the group's point of view, and paused: the client itself fetches nothing.
        consumer.assign([TopicPartition(each.topic, each.partition, OFFSET_END) for each in places])
        consumer.pause(places)
        found = calling(lambda: consumer.committed(places, TIMEOUT_SECONDS))
        self._committed = {each.partition: each.offset for each in found if each.offset >= 0}
        self._positions = {each.partition: self._first_of_group(each.partition) for each in places}
        self._unread = set(self._positions)
        if not set(self._positions) <= set(self._leaders):
            self._find_leaders()

    def _first_of_group(self, partition: int) -> int:
        committed = self._committed.get(partition)
        return self._edge(partition) if committed is None else committed

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        with contextlib.suppress(KafkaException):
            self._commit(is_waiting=True)
        self._positions.clear()
        self._unread = None

    def _commit_now_and_then(self) -> None:
        if self._group is not None and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT_SECONDS
            calling(lambda: self._commit(is_waiting=False))

    def _commit(self, *, is_waiting: bool) -> None:
        changed = {index: offset for index, offset in self._positions.items() if offset != self._committed.get(index)}
        if changed:
            offsets = [TopicPartition(self._topic, index, offset) for index, offset in changed.items()]
            self._consumer.commit(offsets=offsets, asynchronous=not is_waiting)
            self._committed.update(changed)

    def _troubled(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _received(self, partition: int, record: Record) -> Received:
        return Received(
            topic=self._topic,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
