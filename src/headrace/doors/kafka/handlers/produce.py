"""Produce, v3-v13.

- Only record batch v2 is taken, one per partition. Changed bytes are CORRUPT_MESSAGE, which clients send again; what
  no repetition makes right is INVALID_RECORD, with the records at fault where they are known.
- Internal topics are written by their coordinators alone.
- acks=0 gets no response; an error closes the connection, as clients expect (trap 23).
- A topic that does not exist is created first where the door allows it; the frame waits meanwhile. From v13 topics are
  named by id, and an unknown one is UNKNOWN_TOPIC_ID (trap 14).
- From v12 a transactional batch adds its partition to the transaction; the frame waits until that is durable (KIP-890). Before, the
  coordinator is asked whether the partition is part of it, where that is another broker; the frame waits for its word.
- A partition that this broker was given and is just opening is waited for, a moment: a client that hears "not the leader" comes back later.
- Compressed batches for compacted topics are looked into beside the loop first; the frame waits meanwhile.
- Batches of a topic with a Wasm module go through it beside the loop. The frame waits only while too many of its partition's wait.
- A full log does not answer at once either: the frame waits for room until the request's own timeout.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acknowledgement, Acks, Appended, Produce, Verdict
from headrace.broker.topics import PartitionLog, Topic
from headrace.broker.transactions.events import Identity, TopicPartition
from headrace.doors.connection import Blocked
from headrace.doors.kafka.additions import add, code_of_addition, to_add
from headrace.doors.kafka.auto_create import create_missing
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.rights import right
from headrace.doors.kafka.session import Session
from headrace.doors.slots import Slot
from headrace.errors import (
    CoordinatorLoading,
    HeadraceError,
    InvalidRecords,
    PartitionNotFound,
    TimedOut,
    TopicDenied,
    TopicIdNotFound,
    TopicNotFound,
    TransactionNotOpen,
    UnsupportedCompression,
)
from headrace.records.batch import Buffer, Codec, codec_named, is_transactional
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import RequestHeader
from headrace.wire.kafka.produce import (
    PartitionRecords,
    ProduceCall,
    ProducedPartition,
    ProducedTopic,
    TopicRecords,
    encode_produced,
    read_produce,
)

_ACKS: Final = {0: Acks.NONE, 1: Acks.LEADER, -1: Acks.ALL}
_ZSTD_FROM: Final = 7
_KNOWS_ABORTABLE_FROM: Final = 11
_ADDING_FROM: Final = 12
CREATED: Final = "topics created"
ROOM: Final = "room"
OPENED: Final = "opened"
_OPENING_S: Final = 2.0
TIMED_OUT: Final = "timed out"
_NOWHERE: Final = 2**63 - 1
"""Base offset of a batch that is not in the log yet: past all that is kept."""
INSPECTED: Final = "inspected"
RIGHT: Final = right(
    (Operation.WRITE, Resource.TOPIC),
    (Operation.WRITE, Resource.TRANSACTIONAL_ID),
    (Operation.CREATE, Resource.CLUSTER),
    (Operation.CREATE, Resource.TOPIC),
)


def handle(
    frame: memoryview, header: RequestHeader, slot: Slot, session: Session, resumed: str | None
) -> Blocked | None:
    call = read_produce(frame, header.body_at, header.api_version)
    reply = _Reply(header, slot, call)
    acks = _ACKS.get(call.acks)
    if acks is None:
        reply.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS, "acks is one of -1, 0, 1")
        return None
    if resumed == TIMED_OUT:
        session.verdicts = session.additions = None
        reply.refuse_all(ErrorCode.REQUEST_TIMED_OUT, "the log has no room")
        return None
    produce = session.broker.produce
    if not produce.can_take(len(frame)):
        return _wait_for_room(session, call.timeout_ms)
    if produce.is_transforming and (crowded := _crowded(call, session)):
        return _wait_for_lanes(crowded, session, call.timeout_ms)
    if session.guard.is_on and not _may_use_transaction(call, session):
        reply.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed to use this transactional id")
        return None
    topics = session.broker.topics.find_all(topic.topic for topic in call.topics)
    if None in topics and resumed != CREATED and session.settings.auto_create_topics_enable:
        missing = [
            topic.topic
            for topic, live in zip(call.topics, topics, strict=True)
            if live is None and isinstance(topic.topic, str) and _may_create(topic.topic, session)
        ]
        if missing:
            return Blocked(create_missing(missing, session, CREATED))
    if resumed not in (OPENED, INSPECTED) and (being_opened := _being_opened(call, topics, session)):
        return _wait_for_opening(being_opened, session)
    if call.transactional_id is not None and session.additions is None:
        is_adding = header.api_version >= _ADDING_FROM
        if missing_places := _places_to_add(call, topics, session, is_adding=is_adding):
            return Blocked(add(call.transactional_id, missing_places, session, is_adding=is_adding))
        session.additions = {}
    if resumed != INSPECTED:
        session.verdicts = None
        doubtful = _doubtful(call, topics)
        if doubtful:
            return Blocked(_inspected(doubtful, session))
    reply.append(topics, acks, session)
    session.verdicts = session.additions = None
    return None


def _crowded(call: ProduceCall, session: Session) -> list[PartitionLog]:
    """Partitions of the call whose Wasm module has more than enough to do."""
    has_room = session.broker.produce.has_transform_room
    topics = session.broker.topics.find_all(topic.topic for topic in call.topics)
    return [
        live.partitions[entry.index]
        for topic, live in zip(call.topics, topics, strict=True)
        if live is not None
        for entry in topic.partitions
        if 0 <= entry.index < len(live.partitions) and not has_room(live.partitions[entry.index])
    ]


def _wait_for_lanes(crowded: Sequence[PartitionLog], session: Session, timeout_ms: int) -> Blocked:
    produce = session.broker.produce
    transforming = produce.transforming
    assert transforming is not None
    until: Deferred[str] = Deferred()

    def look_again() -> None:
        if not all(map(produce.has_transform_room, crowded)):
            transforming.when_room(look_again)
            return
        timer.cancel()
        until.resolve(ROOM)

    def gives_up() -> None:
        transforming.forget_room(look_again)
        until.resolve(TIMED_OUT)

    timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, gives_up)
    transforming.when_room(look_again)
    return Blocked(until)


def _places_to_add(
    call: ProduceCall, topics: Sequence[Topic | None], session: Session, *, is_adding: bool
) -> Mapping[Identity, frozenset[TopicPartition]]:
    is_asked = session.guard.is_on
    writable = [
        live if not is_asked or _may_write(topic.topic, live, session) else None
        for topic, live in zip(call.topics, topics, strict=True)
    ]
    try:
        return to_add(call, writable, session, is_adding=is_adding)
    except CoordinatorLoading:
        return {}  # Each batch hears of it when it is appended.


def _may_use_transaction(call: ProduceCall, session: Session) -> bool:
    """Records of a transaction need its right, whoever has said the producer's number first."""
    if not any(is_transactional(entry.records) for topic in call.topics for entry in topic.partitions):
        return True
    name = call.transactional_id
    return name is not None and session.guard.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)


def _may_create(name: str, session: Session) -> bool:
    return _may_write(name, None, session) and session.guard.may_create_topic(name)


def _may_write(topic: str | bytes, live: Topic | None, session: Session) -> bool:
    """By name before anybody looks whether there is such a topic; an id that nobody has says nothing to anybody."""
    if isinstance(topic, str):
        return session.guard.may(Operation.WRITE, Resource.TOPIC, topic)
    return live is None or session.guard.may(Operation.WRITE, Resource.TOPIC, live.name)


def _doubtful(call: ProduceCall, topics: Sequence[Topic | None]) -> list[tuple[PartitionLog, bytes]]:
    """Batches that would take who knows how long to check; copies, for the frame stays where it is and this does not."""
    return [
        (live.partitions[entry.index], bytes(entry.records))
        for topic, live in zip(call.topics, topics, strict=True)
        if live is not None and not live.is_internal
        for entry in topic.partitions
        if 0 <= entry.index < len(live.partitions) and live.partitions[entry.index].needs_inspection(entry.records)
    ]


def _inspected(doubtful: list[tuple[PartitionLog, bytes]], session: Session) -> Deferred[str]:
    done: Deferred[str] = Deferred()

    async def look() -> None:
        verdicts: dict[bytes, Verdict] = {}
        for partition, batch in doubtful:
            if batch not in verdicts:
                verdicts[batch] = await partition.inspect(batch)
        session.verdicts = verdicts
        done.resolve(INSPECTED)

    session.door.tasks.spawn(look())
    return done


class _Reply(Acknowledgement):
    """The answer to one request: filled as partitions are appended, sent when all of them are kept."""

    __slots__ = ("_call", "_failure", "_header", "_live", "_slot", "_topics")

    def __init__(self, header: RequestHeader, slot: Slot, call: ProduceCall) -> None:
        super().__init__()
        self._header = header
        self._slot = slot
        self._topics: list[ProducedTopic] = []
        self._live: Sequence[Topic | None] = ()
        self._failure = False
        self._call = call

    def append(self, topics: Sequence[Topic | None], acks: Acks, session: Session) -> None:
        """`topics` are the live ones, in the order the call names them."""
        self._live = topics
        broker = session.broker
        append = broker.produce.append
        now_ms = broker.clock.now_ms()
        is_zstd_unknown = self._header.api_version < _ZSTD_FROM
        is_asked = session.guard.is_on
        for topic, live in zip(self._call.topics, topics, strict=True):
            rows: list[ProducedPartition] = []
            is_allowed = not is_asked or _may_write(topic.topic, live, session)
            for entry in topic.partitions:
                try:
                    if not is_allowed:
                        raise TopicDenied(f"not allowed to write to topic {topic.topic!r}")
                    partition = _partition(topic, live, entry.index)
                    if session.additions and is_transactional(entry.records):
                        _check_addition(partition, entry.records, session)
                    if is_zstd_unknown:
                        _refuse_zstd(entry)
                    if broker.produce.is_transformed(partition):
                        self._append_transformed(partition, entry, rows, acks, broker.produce)
                        continue
                    verdicts = session.verdicts
                    appended = append(
                        partition,
                        entry.records,
                        acks=acks,
                        ack=self,
                        now_ms=now_ms,
                        verdict=None if verdicts is None else verdicts.get(bytes(entry.records)),
                        begins_at_zero=self._header.api_version >= _ADDING_FROM,
                    )
                    rows.append(
                        ProducedPartition(
                            entry.index, 0, appended.base_offset, appended.append_time_ms, partition.log_start
                        )
                    )
                except _NotAdded as refusal:
                    self._failure = True
                    rows.append(ProducedPartition(entry.index, refusal.code, error_message=str(refusal)))
                except HeadraceError as error:
                    self._failure = True
                    rows.append(refused(entry.index, error, self._header.api_version))
            self._topics.append(ProducedTopic(topic.topic, rows))
            if is_allowed and live is not None and (is_asked or session.login is not None):
                session.grant(live)
        if acks is not Acks.NONE:
            self._slot.expires_ms = now_ms + self._call.timeout_ms
            self._slot.on_expiry = self._expired
            self.then(self._kept)
        else:
            self.then(self._sent)

    def _append_transformed(
        self,
        partition: PartitionLog,
        entry: PartitionRecords,
        rows: list[ProducedPartition],
        acks: Acks,
        produce: Produce,
    ) -> None:
        """Its row is written when it is known; until then it stands for a batch that is not kept."""
        batch, place = bytes(entry.records), len(rows)
        begins_at_zero = self._header.api_version >= _ADDING_FROM
        deferred = produce.append_transformed(partition, batch, begins_at_zero=begins_at_zero)
        rows.append(ProducedPartition(entry.index, 0, _NOWHERE))
        self.expect_one()

        def landed(outcome: Deferred[Appended]) -> None:
            try:
                appended = outcome.result()
                rows[place] = ProducedPartition(
                    entry.index, 0, appended.base_offset, appended.append_time_ms, partition.log_start
                )
                if acks is not Acks.NONE and partition.wait(appended.end_offset, self):
                    self.expect_one()
            except HeadraceError as error:
                self._failure = True
                rows[place] = refused(entry.index, error, self._header.api_version)
            except Exception:
                # Whoever transforms has logged it.
                self._failure = True
                rows[place] = ProducedPartition(entry.index, ErrorCode.UNKNOWN_SERVER_ERROR)
            self.settle(None)

        deferred.then(landed)

    def _sent(self, error: HeadraceError | None) -> None:
        """Of acks=0, which nobody waits for."""
        if self._failure or error is not None:
            self._slot.close()
        else:
            self._slot.fill(())

    def _kept(self, error: HeadraceError | None) -> None:
        if error is not None:
            self._fail(error)
        self._slot.fill((encode_produced(self._header.api_version, self._header.correlation_id, self._topics),))

    def _expired(self) -> None:
        self._kept(too_late())

    def _fail(self, error: HeadraceError) -> None:
        for topic, live in zip(self._topics, self._live, strict=True):
            topic.partitions = told_of(error, live, topic.partitions)

    def refuse_all(self, code: ErrorCode, message: str) -> None:
        if self._call.acks == 0:
            self._slot.close()
            return
        topics = [
            ProducedTopic(
                topic.topic, [ProducedPartition(entry.index, code, error_message=message) for entry in topic.partitions]
            )
            for topic in self._call.topics
        ]
        self._slot.fill((encode_produced(self._header.api_version, self._header.correlation_id, topics),))


def too_late() -> TimedOut:
    """The append may still land; the client is told what we know: that it had to wait too long."""
    return TimedOut("not durable within the request's timeout")


def told_of(error: HeadraceError, live: Topic | None, rows: Sequence[ProducedPartition]) -> list[ProducedPartition]:
    """What is kept is kept: only the partitions that still waited are told of the error."""
    code = code_of(error)
    return [
        row if row.error_code or _is_kept(live, row) else ProducedPartition(row.index, code, error_message=str(error))
        for row in rows
    ]


def _is_kept(live: Topic | None, row: ProducedPartition) -> bool:
    return live is not None and live.partitions[row.index].high_watermark > row.base_offset


def refused(index: int, error: HeadraceError, version: int) -> ProducedPartition:
    failures = error.failures if isinstance(error, InvalidRecords) else ()
    code = code_of(error)
    if isinstance(error, CoordinatorLoading):
        # What Kafka says when it cannot ask whether a transaction is open (KIP-890): producers try again.
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif isinstance(error, TransactionNotOpen) and version >= _KNOWS_ABORTABLE_FROM:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return ProducedPartition(index, code, record_errors=failures, error_message=str(error))


def _partition(topic: TopicRecords, live: Topic | None, index: int) -> PartitionLog:
    if live is None:
        if isinstance(topic.topic, bytes):
            raise TopicIdNotFound(f"no topic has the id {topic.topic.hex()}")
        raise TopicNotFound(f"no topic {topic.topic!r}")
    if not 0 <= index < len(live.partitions):
        raise PartitionNotFound(f"topic {topic.topic!r} has no partition {index}")
    return live.partitions[index]


class _NotAdded(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__("the partition could not be added to the transaction")
        self.code = code


def _check_addition(partition: PartitionLog, batch: Buffer, session: Session) -> None:
    error = (session.additions or {}).get(TopicPartition(partition.topic_name, partition.index))
    if error is not None:
        session.broker.produce.note_not_added(partition, batch)
        raise _NotAdded(code_of_addition(error))


def _refuse_zstd(entry: PartitionRecords) -> None:
    if codec_named(entry.records) == Codec.ZSTD:
        raise UnsupportedCompression(f"zstd needs Produce v{_ZSTD_FROM}")


def _being_opened(call: ProduceCall, topics: Sequence[Topic | None], session: Session) -> list[tuple[bytes, int]]:
    opening = session.broker.topics.is_being_opened
    return [
        (live.id, entry.index)
        for topic, live in zip(call.topics, topics, strict=True)
        if live is not None
        for entry in topic.partitions
        if 0 <= entry.index < len(live.partitions) and opening(live, entry.index)
    ]


def _wait_for_opening(places: Sequence[tuple[bytes, int]], session: Session) -> Blocked:
    topics = session.broker.topics
    until: Deferred[str] = Deferred()

    def look_again() -> None:
        found = ((topics.find_by_id(topic_id), index) for topic_id, index in places)
        if any(topic is not None and topics.is_being_opened(topic, index) for topic, index in found):
            topics.when_opened(look_again)
            return
        timer.cancel()
        until.resolve(OPENED)

    def gives_up() -> None:
        topics.forget_opened(look_again)
        until.resolve(OPENED)

    timer = asyncio.get_running_loop().call_later(_OPENING_S, gives_up)
    topics.when_opened(look_again)
    return Blocked(until)


def _wait_for_room(session: Session, timeout_ms: int) -> Blocked:
    """Neither the timer nor the wish outlives the other: a full log may stay so for hours, and producers come back."""
    produce = session.broker.produce
    until: Deferred[str] = Deferred()

    def has_room() -> None:
        timer.cancel()
        until.resolve(ROOM)

    def gives_up() -> None:
        produce.forget_room(has_room)
        until.resolve(TIMED_OUT)

    timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, gives_up)
    produce.when_room(has_room)
    return Blocked(until)
