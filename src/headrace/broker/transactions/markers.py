"""Writes the outcome of a transaction into every partition it touched, until it is there.

Of several brokers each partition's leader writes its own: the coordinator asks it over the link. A broker that does not lead it (any
more) has written nothing that counts: the coordinator looks for the leader again. Only a coordinator that was deposed stops, for its
successor reads from the log what was decided.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.offsets import Offsets, OpenOffsets
from headrace.broker.peers import calls
from headrace.broker.peers.calls import Done, Peers, WriteMarker
from headrace.broker.produce import Produce
from headrace.broker.topics import Topics
from headrace.broker.transactions.events import TopicPartition, WriteMarkers
from headrace.clock import Clock
from headrace.errors import CoordinatorLoading, HeadraceError, NotFound, NotLeader, ProducerFenced, StaleEpoch
from headrace.log.partition import Appended
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
        self._asking: dict[asyncio.Task[None], None] = {}
        self.peers: Peers | None = None
        """The other brokers, where there are any."""

    def write(
        self,
        action: WriteMarkers,
        coordinator_epoch: int,
        on_done: Callable[[], None],
        *,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_done` is called once, when every partition has its marker or no longer exists; never by a former coordinator.

        `is_over` says that the caller is one by now: nothing is tried again.
        """
        left = set(action.partitions)
        if not left:
            # Not at once: the caller is in the middle of a step.
            asyncio.get_running_loop().call_soon(on_done)
            return

        def finished(partition: TopicPartition) -> None:
            left.discard(partition)
            if not left:
                on_done()

        for partition in sorted(action.partitions):
            self._write_one(action, coordinator_epoch, partition, finished, is_over)

    def _write_one(
        self,
        action: WriteMarkers,
        coordinator_epoch: int,
        where: TopicPartition,
        finished: Callable[[TopicPartition], None],
        is_over: Callable[[], bool],
    ) -> None:
        def settle(error: HeadraceError | None) -> None:
            if is_over():
                return
            if error is None:
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
                self._retry(lambda: self._write_one(action, coordinator_epoch, where, finished, is_over))

        def written(done: Deferred[None]) -> None:
            try:
                done.result()
            except HeadraceError as error:
                settle(error)
            else:
                settle(None)

        try:
            self._write_at_leader(action, coordinator_epoch, where).then(written)
        except HeadraceError as error:
            reason = error
            asyncio.get_running_loop().call_soon(lambda: settle(reason))

    def _write_at_leader(self, action: WriteMarkers, coordinator_epoch: int, where: TopicPartition) -> Deferred[None]:
        """By whoever leads the partition, as far as is known here."""
        partition = self._topics.partition(where.topic, where.partition)
        call = WriteMarker(
            where.topic,
            where.partition,
            partition.leader_epoch,
            action.producer.producer_id,
            action.producer.epoch,
            coordinator_epoch,
            action.is_commit,
        )
        if self.peers is None or not partition.removed:
            return self.append_here(call)
        leader = self._topics.get(where.topic).leaders[where.partition]
        done: Deferred[None] = Deferred()
        asking = asyncio.ensure_future(self._ask(self.peers, leader, call, done))
        self._asking[asking] = None
        asking.add_done_callback(self._asking.pop)
        return done

    async def _ask(self, peers: Peers, leader: str, call: WriteMarker, done: Deferred[None]) -> None:
        try:
            await calls.ask(peers, leader, call, Done)
        except NotFound as error:
            # It has not heard of the topic yet. Whether there is one, the catalogue of this broker says.
            done.reject(NotLeader(str(error)))
        except HeadraceError as error:
            done.reject(error)
        else:
            done.resolve(None)

    def append_here(self, call: WriteMarker) -> Deferred[None]:
        """Write the marker into a partition that this broker leads; resolved when it is durable.

        `NotLeader` where another leads it, `StaleEpoch` for a marker of a coordinator that was deposed, `ProducerFenced` where a newer
        epoch of the producer is known: that has ended this transaction already.
        """
        partition = self._topics.led_partition(call.topic, call.partition)
        if partition.leader_epoch != call.leader_epoch:
            raise NotLeader(f"{call.topic}-{call.partition} is led in epoch {partition.leader_epoch} by now")
        is_of_offsets = call.topic == self._offsets_topic
        if is_of_offsets and not self._offsets.is_partition_loaded(call.partition):
            raise CoordinatorLoading(f"{call.topic}-{call.partition} is still being read")
        marker = build_marker(
            is_commit=call.is_commit,
            producer_id=call.producer_id,
            producer_epoch=call.producer_epoch,
            coordinator_epoch=call.coordinator_epoch,
            now_ms=self._clock.now_ms(),
        )
        done: Deferred[None] = Deferred()

        def appended(appending: Deferred[Appended]) -> None:
            try:
                appending.result()
            except HeadraceError as error:
                done.reject(error)
                return
            if is_of_offsets:
                self._offsets.end_transaction(call.partition, call.producer_id, is_commit=call.is_commit)
            done.resolve(None)

        self._produce.append_marker(partition, marker).then(appended)
        return done

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
        for asking in list(self._asking):
            asking.cancel()
