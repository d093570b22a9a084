"""From accepted messages to records in the log.

A stream's topic is `logjam-<app>-<env>`, made when its first message comes; messages that arrive meanwhile wait for
it, in order. What another broker leads is passed on to it. What may wait is bounded: beyond that messages are dropped, counted, and said so in the log, because
an application that writes its log must never stand still for it.
"""

import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from headrace.broker.deferred import Deferred
from headrace.broker.services import Broker
from headrace.broker.topics import PartitionLog, Topic
from headrace.doors.gathering import Gathering
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.tasks import Tasks
from headrace.doors.turns import Turns
from headrace.errors import HeadraceError, Invalid
from headrace.records.record import Headers, NewRecord
from headrace.wire.logjam.compression import decompress
from headrace.wire.logjam.messages import DataMessage
from headrace.wire.logjam.names import log_topic_name
from headrace.wire.logjam.payload import read_request_id

_OVERHEAD: Final = 256
"""Key, headers and bookkeeping of one message, about."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """One message on its way; `wants_reply` if its sender was told 202."""

    record: NewRecord
    request_id: str | None
    size: int
    wants_reply: bool


@dataclass(slots=True)
class _Stream:
    """One app-env: its topic once there is one, and what has come in since the last append."""

    name: str
    topic: Topic | None = None
    waiting: list[_Waiting] = field(default_factory=list)
    is_creating: bool = False


class Intake:
    """`take` messages as they are drained from a socket, then `append` them together."""

    def __init__(
        self, broker: Broker, settings: LogjamSettings, metrics: LogjamMetrics, tasks: Tasks, turns: Turns
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._metrics = metrics
        self._tasks = tasks
        self._gathering = Gathering(broker.produce, turns, broker.forwarding)
        self._streams: dict[bytes, _Stream] = {}
        self._touched: dict[bytes, _Stream] = {}

    def take(self, message: DataMessage, *, wants_reply: bool) -> bytes | None:
        """Gives the body, decompressed, if the message is on its way to the log."""
        if self._metrics.waiting_bytes > self._settings.waiting_max_bytes:
            self._drop("the log does not keep up", wants_reply)
            return None
        stream = self._stream_of(message)
        if stream is None:
            self._drop("too many streams", wants_reply)
            return None
        try:
            body = decompress(message.meta.compression, message.body, bytes_max=self._settings.body_max_bytes)
            request_id = read_request_id(body)
        except Invalid:
            self._metrics.undecodable_total += 1
            self._metrics.accepted_then_failed_total += wants_reply
            return None
        size = len(body) + _OVERHEAD
        self._metrics.waiting_bytes += size
        record = NewRecord(
            key=message.topic,
            value=body,
            headers=_headers(message),
            timestamp_ms=self._timestamp(message.meta.created_ms),
        )
        stream.waiting.append(_Waiting(record, request_id, size, wants_reply))
        self._touched[message.app_env] = stream
        return body

    def append(self) -> None:
        """Hand everything taken since the last call to the log, one batch per partition."""
        touched, self._touched = self._touched, {}
        for stream in touched.values():
            if stream.topic is None or self._broker.topics.find(stream.name) is not stream.topic:
                self._create(stream)
            else:
                self._append_stream(stream, stream.topic)

    def stop(self) -> None:
        self.append()
        self._gathering.stop()

    def _stream_of(self, message: DataMessage) -> _Stream | None:
        stream = self._streams.get(message.app_env)
        if stream is None:
            name = log_topic_name(message.stream)
            topic = self._broker.topics.find(name)
            if topic is None and len(self._streams) >= self._settings.streams_max:
                return None
            stream = self._streams[message.app_env] = _Stream(name, topic)
        return stream

    def _create(self, stream: _Stream) -> None:
        if not stream.is_creating:
            stream.is_creating = True
            self._tasks.spawn(self._create_topic(stream))

    async def _create_topic(self, stream: _Stream) -> None:
        config = {"max.message.bytes": str(self._settings.body_max_bytes + 1024 * 1024)}
        try:
            stream.topic = await self._broker.topics.ensure(
                stream.name, partitions=self._settings.partitions, config=config
            )
        except HeadraceError as error:
            log.error("logjam topic could not be made", topic=stream.name, reason=str(error))
            self._failed(stream.waiting)
            stream.waiting = []
        else:
            self._append_stream(stream, stream.topic)
        finally:
            stream.is_creating = False

    def _append_stream(self, stream: _Stream, topic: Topic) -> None:
        waiting, stream.waiting = stream.waiting, []
        partitions = topic.partitions
        if len(partitions) == 1:
            self._append_to(partitions[0], waiting)
            return
        spread: dict[PartitionLog, list[_Waiting]] = {}
        for each in waiting:
            # Without a request id all of a stream goes to one partition, so that its order holds.
            number = zlib.crc32((each.request_id or stream.name).encode()) % len(partitions)
            spread.setdefault(partitions[number], []).append(each)
        for partition, share in spread.items():
            self._append_to(partition, share)

    def _append_to(self, partition: PartitionLog, waiting: list[_Waiting]) -> None:
        for chunk in _chunks(waiting, partition.policy.message_bytes_max // 2):
            size = sum(each.size for each in chunk)
            try:
                kept = self._gathering.append(
                    partition, [each.record for each in chunk], size=size, reply=lambda base_offset: base_offset
                )
            except HeadraceError as error:
                log.warning("logjam messages refused by the log", topic=partition.topic_name, reason=str(error))
                self._failed(chunk)
            else:
                kept.then(partial(self._settled, chunk))

    def _settled(self, waiting: list[_Waiting], outcome: Deferred[int]) -> None:
        try:
            outcome.result()
        except HeadraceError as error:
            log.error("logjam messages were not kept", messages=len(waiting), reason=str(error))
            self._failed(waiting)
            return
        self._metrics.stored_total += len(waiting)
        self._metrics.waiting_bytes -= sum(each.size for each in waiting)

    def _failed(self, waiting: list[_Waiting]) -> None:
        self._metrics.dropped_total += len(waiting)
        self._metrics.accepted_then_failed_total += sum(each.wants_reply for each in waiting)
        self._metrics.waiting_bytes -= sum(each.size for each in waiting)

    def _drop(self, reason: str, wants_reply: bool) -> None:
        self._metrics.dropped_total += 1
        self._metrics.accepted_then_failed_total += wants_reply
        log.warning("logjam message dropped", reason=reason, dropped_total=self._metrics.dropped_total)

    def _timestamp(self, created_ms: int) -> int | None:
        """The sender's time, unless it is one that the log would refuse together with the whole batch."""
        now_ms = self._broker.clock.now_ms()
        return created_ms if 0 < created_ms <= now_ms + _AHEAD_MAX_MS else None


_AHEAD_MAX_MS: Final = 60 * 60 * 1000


def _headers(message: DataMessage) -> Headers:
    meta = message.meta
    return (
        ("app-env", message.app_env),
        ("topic", message.topic),
        ("compression", b"%d" % meta.compression),
        ("device", b"%d" % meta.device_number),
        ("created-ms", b"%d" % meta.created_ms),
        ("sequence", b"%d" % meta.sequence),
    )


def _chunks(waiting: list[_Waiting], bytes_max: int) -> list[list[_Waiting]]:
    """As few appends as the topic's batch limit allows; nearly always one."""
    chunks: list[list[_Waiting]] = []
    size = bytes_max
    for each in waiting:
        if size + each.size > bytes_max:
            chunks.append([])
            size = 0
        chunks[-1].append(each)
        size += each.size
    return chunks
