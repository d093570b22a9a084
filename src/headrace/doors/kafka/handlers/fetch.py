"""Fetch, v4-v18.

- Waits up to `max_wait_ms` for `min_bytes`, always answers by then (traps 8, 9).
- The first partition with records returns at least one whole batch, above both limits (trap 10, KIP-74).
- Records are never null (trap 6); batches are whole and unmodified (trap 11).
- Topics by name up to v12, by id from v13; an unknown id is UNKNOWN_TOPIC_ID, never 3 (trap 14).
  Replicas say more from v17 on (directory, high watermark); nobody here listens.
- Incremental sessions from v7 (trap 12).
"""

import structlog

from headrace.broker.access.words import Operation, Resource
from headrace.broker.deferred import Deferred
from headrace.broker.fetch import Isolation, PartitionRead, ReadSpec
from headrace.broker.topics import Topic
from headrace.doors.connection import Blocked
from headrace.doors.kafka.epochs import check_epoch
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.fetch_sessions import FetchSession, OtherTopicNames, SessionNotFound, WrongSessionEpoch
from headrace.doors.kafka.rights import right
from headrace.doors.kafka.session import Session
from headrace.doors.slots import Slot
from headrace.errors import HeadraceError, TopicDenied
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.fetch import (
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEnd,
    FetchCall,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchTopic,
    encode_fetched,
    read_fetch,
)
from headrace.wire.kafka.headers import RequestHeader

Row = FetchedPartition | ReadSpec
RIGHT = right((Operation.READ, Resource.TOPIC), (Operation.CLUSTER_ACTION, Resource.CLUSTER))

log = structlog.get_logger(__name__)


def handle(
    frame: memoryview, header: RequestHeader, slot: Slot, session: Session, resumed: str | None
) -> Blocked | None:
    call = read_fetch(frame, header.body_at, header.api_version)
    reply = _Reply(header, slot, session)
    try:
        reply.begin(call)
    except SessionNotFound:
        reply.refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    except WrongSessionEpoch:
        reply.refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    except OtherTopicNames:
        reply.refuse(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    return None


class _Reply:
    """One fetch: a row per partition asked for, either decided at once or read by the broker."""

    __slots__ = ("_asked_revision", "_fetch_session", "_header", "_session", "_slot", "_topics")

    def __init__(self, header: RequestHeader, slot: Slot, session: Session) -> None:
        self._header = header
        self._slot = slot
        self._session = session
        self._fetch_session: FetchSession | None = None
        self._asked_revision = session.guard.revision
        self._topics: list[tuple[str | bytes, list[tuple[int, Row]]]] = []

    def refuse(self, code: ErrorCode) -> None:
        self._slot.fill(encode_fetched(self._header.api_version, self._header.correlation_id, [], error_code=code))

    def begin(self, call: FetchCall) -> None:
        owner = str(self._session.guard.principal)
        is_by_id = self._header.api_version >= TOPIC_ID_FROM
        self._fetch_session = self._session.door.fetch_sessions.open(call, owner, is_by_id=is_by_id)
        topics = call.topics if self._fetch_session is None else self._fetch_session.topics()
        specs: list[ReadSpec] = []
        has_errors = False
        is_asked = self._session.guard.is_on
        for topic in topics:
            live = self._find(topic)
            rows: list[tuple[int, Row]] = []
            if is_asked and not self._may_read(call, topic.topic, live):
                has_errors = True
                rows = [(each.index, _denied(each.index)) for each in topic.partitions]
                self._topics.append((topic.topic, rows))
                continue
            for partition in topic.partitions:
                row = self._plan(topic, partition, live)
                if isinstance(row, ReadSpec):
                    specs.append(row)
                else:
                    has_errors = True
                rows.append((partition.index, row))
            self._topics.append((topic.topic, rows))
        max_bytes = min(call.bytes_max, self._session.settings.fetch_max_bytes)
        if (peers := self._session.peers) is not None:
            max_bytes = min(max_bytes, peers.room_for_answer())
        if (allowed := self._session.fetch_bytes_max) is not None:
            max_bytes = min(max_bytes, allowed)
        reading = self._session.broker.fetch.read(
            specs,
            min_bytes=min(call.bytes_min, max_bytes),
            max_bytes=max_bytes,
            wait_ms=0 if has_errors else call.wait_ms_max,
            isolation=Isolation.COMMITTED if call.isolation_level == 1 else Isolation.UNCOMMITTED,
        )
        self._slot.on_lost = reading.abandon
        reading.then(self._finished)

    def _may_read(self, call: FetchCall, topic: str | bytes, live: Topic | None) -> bool:
        """By name before anybody looks whether there is such a topic; an id that nobody has says nothing to anybody."""
        guard = self._session.guard
        if call.replica_id >= 0:
            return guard.may(Operation.CLUSTER_ACTION, Resource.CLUSTER)
        if isinstance(topic, str):
            return guard.may(Operation.READ, Resource.TOPIC, topic)
        return live is None or guard.may(Operation.READ, Resource.TOPIC, live.name)

    def _still_allowed(self, read: PartitionRead) -> PartitionRead:
        name = read.partition.topic_name
        if self._session.guard.may(Operation.READ, Resource.TOPIC, name):
            return read
        return PartitionRead(read.partition, error=TopicDenied(f"not allowed to read topic {name!r}"))

    def _find(self, topic: FetchTopic) -> Topic | None:
        topics = self._session.broker.topics
        return topics.find(topic.topic) if isinstance(topic.topic, str) else topics.find_by_id(topic.topic)

    def _plan(self, topic: FetchTopic, partition: FetchPartition, live: Topic | None) -> Row:
        if live is None:
            unknown = isinstance(topic.topic, bytes)
            code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return FetchedPartition(partition.index, code, aborted=())
        if not 0 <= partition.index < len(live.partitions):
            return FetchedPartition(partition.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, aborted=())
        log = live.partitions[partition.index]
        try:
            check_epoch(log, partition.leader_epoch)
        except HeadraceError as error:
            return FetchedPartition(partition.index, code_of(error))
        if partition.last_fetched_epoch >= 0:
            end = log.end_of_epoch(partition.last_fetched_epoch)
            if end is not None and (end.start_offset < partition.offset or end.epoch < partition.last_fetched_epoch):
                return FetchedPartition(
                    partition.index,
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start=log.log_start,
                    diverging=EpochEnd(end.epoch, end.start_offset),
                )
        return ReadSpec(log, partition.offset, partition.bytes_max)

    def _finished(self, done: Deferred[list[PartitionRead]]) -> None:
        try:
            reads = done.result()
        except Exception:
            # What nobody foresaw: its stack is logged, and the client's connection ends rather than hang.
            log.exception("fetch failed", door="kafka")
            self._slot.close()
            return
        self._send(reads)

    def _send(self, reads: list[PartitionRead]) -> None:
        if (peers := self._session.peers) is not None:
            peers.unsent_bytes += sum(read.size for read in reads)
        if self._session.guard.revision != self._asked_revision:
            # Somebody's rights have changed while this fetch waited for records.
            reads = [self._still_allowed(read) for read in reads]
        found = iter(reads)
        topics = [
            FetchedTopic(
                topic,
                [row if isinstance(row, FetchedPartition) else _fetched(index, next(found)) for index, row in rows],
            )
            for topic, rows in self._topics
        ]
        session_id = 0
        if self._fetch_session is not None:
            session_id = self._fetch_session.id
            topics = self._fetch_session.news(topics)
        self._slot.fill(
            encode_fetched(self._header.api_version, self._header.correlation_id, topics, session_id=session_id)
        )


def _denied(index: int) -> FetchedPartition:
    return FetchedPartition(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())


def _fetched(index: int, read: PartitionRead) -> FetchedPartition:
    if read.error is not None:
        return FetchedPartition(index, code_of(read.error))
    aborted = None
    if read.aborted is not None:
        aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in read.aborted]
    return FetchedPartition(
        index, 0, read.high_watermark, read.last_stable_offset, read.log_start, read.slices, read.size, aborted
    )
