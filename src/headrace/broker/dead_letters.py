"""Records that a Wasm module failed on, written as they came to another topic, with the reason beside them.

They are durable there before their producer is told anything. A producer that repeats the batch because it was not told writes them
twice: a dead letter comes at least once. They are no part of a transaction, also where the batch was.
"""

import asyncio
from typing import Final

from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.errors import TransformFailed
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.records.builder import build_batch
from headrace.records.record import Headers, NewRecord, Record, read_batch_records

REASON: Final = "headrace.dead_letter.reason"
TOPIC: Final = "headrace.dead_letter.topic"
PARTITION: Final = "headrace.dead_letter.partition"
MODULE: Final = "headrace.dead_letter.module"
_REASON_MAX: Final = 500


class _Durable:
    """What the log settles."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class DeadLetters:
    def __init__(self, topics: Topics, store: LogStore, clock: Clock) -> None:
        self._topics = topics
        self._store = store
        self._clock = clock

    async def bury(
        self, source: PartitionLog, batch: bytes, topic: str, module_id: str, reason: TransformFailed
    ) -> None:
        """Returns when they are kept. Raises `reason` itself where they cannot be, so that the batch is refused."""
        target = self._partition(topic, source, reason)
        headers = (
            (TOPIC, source.topic_name.encode()),
            (PARTITION, str(source.index).encode()),
            (MODULE, module_id.encode()),
            (REASON, str(reason)[:_REASON_MAX].encode()),
        )
        now_ms = self._clock.now_ms()
        letters = await asyncio.to_thread(_letters, batch, headers, now_ms)
        self._store.require_room(len(letters))
        appended = target.append(letters, now_ms=now_ms)
        kept = _Durable()
        if target.wait(appended.end_offset, kept):
            await kept.future

    def _partition(self, name: str, source: PartitionLog, reason: TransformFailed) -> PartitionLog:
        """One that this broker leads, the same for the same source."""
        topic = self._topics.find(name)
        if topic is None:
            raise TransformFailed(f"{reason}; and there is no dead-letter topic {name!r}", reason.failures) from reason
        led = [each for each in topic.partitions if not each.removed]
        if not led or topic.id == source.topic_id or topic.is_internal:
            problem = "has no partition that is led here" if not led else "is not for dead letters"
            raise TransformFailed(f"{reason}; and topic {name!r} {problem}", reason.failures) from reason
        return led[source.index % len(led)]


def _letters(batch: bytes, headers: Headers, now_ms: int) -> bytes:
    return bytes(build_batch([_letter(each, headers) for each in read_batch_records(batch)], now_ms=now_ms))


def _letter(record: Record, headers: Headers) -> NewRecord:
    return NewRecord(
        key=record.key,
        value=record.value,
        headers=(*record.headers, *headers),
        timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
    )
