"""Writes the outcome of a transaction into every partition it touched, until it is there."""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.broker.offsets import Offsets, OpenOffsets
from headrace.broker.produce import Produce
from headrace.broker.topics import Topics
from headrace.broker.transactions.events import TopicPartition, WriteMarkers
from headrace.clock import Clock
from headrace.errors import HeadraceError, NotFound, ProducerFenced, StaleEpoch
from headrace.records.builder import build_marker
from headrace.telemetry.logging import get_logger

RETRY_S: Final = 0.2

log = get_logger(__name__)


class Markers:
    def __init__(self, topics: Topics, produce: Produce, offsets: Offsets, clock: Clock, *, offsets_topic: str) -> None:
        self._topics = topics
        self._produce = produce
        self._offsets = offsets
        self._clock = clock
        self._offsets_topic = offsets_topic
        self._retries: set[asyncio.TimerHandle] = set()

    def write(self, action: WriteMarkers, coordinator_epoch: int, on_done: Callable[[], None]) -> None:
        """`on_done` is called once, when every partition has its marker or no longer exists; never by a former coordinator."""
        left = set(action.partitions)
        if not left:
            # Not at once: the caller is in the middle of a step.
            asyncio.get_running_loop().call_soon(on_done)
            return

        def finished(partition: TopicPartition) -> None:
            left.discard(partition)
            if not left:
                on_done()

        for partition in action.partitions:
            self._write_one(action, coordinator_epoch, partition, finished)

    def _write_one(
        self,
        action: WriteMarkers,
        coordinator_epoch: int,
        where: TopicPartition,
        finished: Callable[[TopicPartition], None],
    ) -> None:
        marker = build_marker(
            is_commit=action.is_commit,
            producer_id=action.producer.producer_id,
            producer_epoch=action.producer.epoch,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
        )

        def settle(error: HeadraceError | None) -> None:
            if error is None:
                if where.topic == self._offsets_topic:
                    self._offsets.end_transaction(
                        where.partition, action.producer.producer_id, is_commit=action.is_commit
                    )
                finished(where)
            elif isinstance(error, StaleEpoch):
                # A newer life of the coordinator has the transaction, and ends it. To report it as ended here would be a lie.
                log.error("marker refused", topic=where.topic, partition=where.partition, reason=str(error))
            elif isinstance(error, NotFound | ProducerFenced):
                # The topic is gone, or a newer epoch has ended this transaction already: nothing is left to say. Not so where
                # this broker does not lead the partition: another may, and its readers wait for the outcome.
                log.info("marker not needed", topic=where.topic, partition=where.partition, reason=str(error))
                finished(where)
            else:
                log.warning("marker delayed", topic=where.topic, partition=where.partition, reason=str(error))
                self._retry(lambda: self._write_one(action, coordinator_epoch, where, finished))

        try:
            appending = self._produce.append_marker(self._topics.partition(where.topic, where.partition), marker)
        except HeadraceError as error:
            reason = error
            asyncio.get_running_loop().call_soon(lambda: settle(reason))
            return

        def appended(done: object) -> None:
            try:
                appending.result()
            except HeadraceError as error:
                settle(error)
            else:
                settle(None)

        appending.then(appended)

    def open_offsets(self) -> list[OpenOffsets]:
        """Committed offsets that wait for a marker."""
        return self._offsets.open()

    async def abort_offsets(self, orphan: OpenOffsets, coordinator_epoch: int) -> None:
        """Write the marker of a transaction that no coordinator knows; raises when it cannot be written now."""
        marker = build_marker(
            is_commit=False,
            producer_id=orphan.producer_id,
            producer_epoch=orphan.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
        )
        await self._produce.append_marker(self._topics.partition(self._offsets_topic, orphan.log_partition), marker)
        self._offsets.end_transaction(orphan.log_partition, orphan.producer_id, is_commit=False)

    def _retry(self, again: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(handle)
            again()

        handle = asyncio.get_running_loop().call_later(RETRY_S, run)
        self._retries.add(handle)

    def stop(self) -> None:
        for handle in self._retries:
            handle.cancel()
