"""Transactions of every transactional id: finds the machine a request is for, performs what it asks, survives restarts.

Until `load` is through, every request raises `CoordinatorLoading`, and no transaction's time runs. Of several brokers each coordinates the
ids whose partition of `__transaction_state` it leads; requests for others raise `NotCoordinator`. One that loses a partition gives up
in the middle of whatever it was doing: all that it decided is in the log, or was never decided.
"""

import functools
from collections.abc import Mapping
from typing import assert_never

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.hosting import Alarm, SteadyClock, Tickets
from headrace.broker.internal_topic import InternalTopic
from headrace.broker.peers.calls import PartTaken
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.transactions import events, records
from headrace.broker.transactions.events import (
    Identity,
    TopicPartition,
    TransactionError,
    TransactionImage,
    TransactionState,
)
from headrace.broker.transactions.machine import (
    EPOCH_MAX,
    PREPARED,
    TransactionMachine,
    TransactionSettings,
    new_transaction,
)
from headrace.broker.transactions.markers import Markers
from headrace.broker.transactions.settings import TransactionCoordinatorSettings
from headrace.clock import Clock
from headrace.errors import HeadraceError, NotCoordinator, ProducerFenced, TransactionNotOpen
from headrace.log.partition import Appended, PartitionLog
from headrace.records.batch import BatchHeader
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)


class ProducerReply(msgspec.Struct, frozen=True, kw_only=True):
    error: TransactionError = TransactionError.NONE
    producer: Identity = Identity(producer_id=-1, epoch=-1)


class Transactions:
    def __init__(
        self,
        log_topic: InternalTopic,
        markers: Markers,
        producer_ids: ProducerIds,
        clock: Clock,
        settings: TransactionCoordinatorSettings,
        *,
        offsets_log: InternalTopic,
    ) -> None:
        self._log = log_topic
        self._markers = markers
        self._producer_ids = producer_ids
        self._clock = SteadyClock(clock)
        self._settings = TransactionSettings(
            timeout_ms_max=settings.timeout_ms_max, expiration_ms=settings.id_expiration_ms
        )
        self._offsets_log = offsets_log
        self._drivers: dict[str, _Driver] = {}
        self._by_producer: dict[int, _Driver] = {}

    @property
    def is_loaded(self) -> bool:
        return self._log.is_loaded

    async def init(self, transactional_id: str, *, timeout_ms: int, expected: Identity | None = None) -> ProducerReply:
        """A producer begins: it gets an id and a new epoch, and whoever had the name before is fenced."""
        if not transactional_id:
            return ProducerReply(error=TransactionError.INVALID_REQUEST)
        self._log.require_loaded(transactional_id)
        spare = await self._producer_ids.take()
        self._log.require_loaded(transactional_id)
        driver = self._drivers.get(transactional_id)
        if driver is None:
            machine = new_transaction(
                spare, timeout_ms=timeout_ms, now_ms=self._clock.now_ms(), settings=self._settings
            )
            driver = self._host(transactional_id, machine)
        return await driver.init(events.Init(timeout_ms=timeout_ms, expected=expected, spare_producer_id=spare))

    def add_partitions(
        self, transactional_id: str, producer: Identity, partitions: frozenset[TopicPartition]
    ) -> Deferred[TransactionError]:
        driver = self._find(transactional_id)
        if driver is None:
            return Deferred.resolved(_unknown(transactional_id))
        return driver.request(events.AddPartitions(producer=producer, partitions=partitions))

    async def add_offsets(self, transactional_id: str, producer: Identity, group_id: str) -> TransactionError:
        """The offsets of `group_id` take part: their partition of the offsets topic gets a marker too."""
        self._log.require_loaded(transactional_id)
        await self._offsets_log.ensure()
        return await self.add_partitions(transactional_id, producer, frozenset({self.offsets_of(group_id)}))

    def offsets_of(self, group_id: str) -> TopicPartition:
        return TopicPartition(self._offsets_log.name, self._offsets_log.partition_of(group_id))

    def end(self, transactional_id: str, producer: Identity, *, is_commit: bool) -> Deferred[TransactionError]:
        driver = self._find(transactional_id)
        if driver is None:
            return Deferred.resolved(_unknown(transactional_id))
        return driver.request(events.End(producer=producer, is_commit=is_commit))

    async def end_and_bump(self, transactional_id: str, producer: Identity, *, is_commit: bool) -> ProducerReply:
        """The same for a client that goes on with another epoch after each transaction, which it is told here."""
        driver = self._find(transactional_id)
        if driver is None:
            return ProducerReply(error=_unknown(transactional_id))
        is_used_up = driver.machine.image.epoch >= EPOCH_MAX - 1
        spare = await self._producer_ids.take() if is_used_up else -1
        return await driver.end(
            events.End(producer=producer, is_commit=is_commit, is_bumping=True, spare_producer_id=spare)
        )

    def not_added(
        self, transactional_id: str, producer: Identity, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Those of `partitions` that are no part of an open transaction of this producer yet."""
        image = self.find(transactional_id)
        if image is None or image.state is not TransactionState.ONGOING:
            return partitions
        is_same = (image.producer_id, image.epoch) == (producer.producer_id, producer.epoch)
        return partitions - image.partitions if is_same else partitions

    def check_holder(self, transactional_id: str, producer: Identity) -> TransactionError:
        """Does this producer hold the name now, with no outcome on its way?"""
        image = self.find(transactional_id)
        if image is None:
            return _unknown(transactional_id)
        if image.producer_id != producer.producer_id:
            return TransactionError.INVALID_PRODUCER_ID_MAPPING
        if image.epoch != producer.epoch:
            return TransactionError.PRODUCER_FENCED
        return TransactionError.CONCURRENT_TRANSACTIONS if image.state in PREPARED else TransactionError.NONE

    def check_offsets(self, transactional_id: str, producer: Identity, group_id: str) -> TransactionError:
        """Does this producer hold the name now, and has it added the offsets of `group_id` to an open transaction?

        Offsets that no transaction has a marker for would wait for ever, or follow one they are no part of.
        """
        error = self.check_holder(transactional_id, producer)
        if error is not TransactionError.NONE:
            return error
        is_missing = self.not_added(transactional_id, producer, frozenset({self.offsets_of(group_id)}))
        return TransactionError.INVALID_TXN_STATE if is_missing else TransactionError.NONE

    def check_append(self, partition: PartitionLog, header: BatchHeader) -> None:
        """Refuse a transactional batch that no coordinator would ever end (KIP-890).

        A batch that was long on its way may arrive when its transaction is over; taken in, it would open one that
        nobody closes, and hold every read_committed reader of the partition for good.
        """
        driver = self._by_producer.get(header.producer_id)
        if driver is None:
            self._log.require_all_loaded()
        image = None if driver is None else driver.machine.image
        if image is not None and header.producer_epoch < image.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} epoch {header.producer_epoch}, newest is {image.epoch}"
            )
        where = TopicPartition(partition.topic_name, partition.index)
        if image is None or image.state is not TransactionState.ONGOING or where not in image.partitions:
            raise TransactionNotOpen(
                f"{where.topic}-{where.partition} is no part of an open transaction of producer {header.producer_id}"
            )

    def find(self, transactional_id: str) -> TransactionImage | None:
        driver = self._find(transactional_id)
        if driver is None or driver.machine.image.epoch < 0:
            return None
        return driver.machine.image

    def all(self) -> dict[str, TransactionImage]:
        self._log.require_all_loaded()
        return {
            name: driver.machine.image
            for name, driver in sorted(self._drivers.items())
            if driver.machine.image.epoch >= 0
        }

    def leaders(self) -> frozenset[str]:
        """The brokers that coordinate transactions, where there are several."""
        return self._log.leaders()

    # -- starting and stopping

    async def load(self, index: int | None = None) -> None:
        """Replay that partition of the log, or all of it; then carry out what was decided. May be tried again.

        Needs topics loaded, and for all of it groups.
        """
        images: dict[str, TransactionImage] = {}
        async for batch in self._log.replay(index):
            # Earlier versions let clients put this topic into a transaction, which left markers in it.
            for record in () if batch.header.is_control else batch.records:
                where = f"partition {batch.partition}, offset {record.offset}"
                found = self._log.read(where, functools.partial(records.decode, record))
                if found is None:
                    continue
                if found.image is None:
                    images.pop(found.transactional_id, None)
                else:
                    images[found.transactional_id] = found.image
        if index is None:
            await self._abort_orphans(images)
        # Nothing is awaited from here on: nobody can meet a part of it.
        self._log.note_loaded(index)
        for transactional_id, image in images.items():
            self._host(transactional_id, TransactionMachine(self._settings, image)).resume()
        if images:
            log.info("transactional ids loaded", count=len(images))

    async def _abort_orphans(self, images: Mapping[str, TransactionImage]) -> None:
        """End what waits for the outcome of a transaction that there is not: earlier versions took offsets without one.

        Before any transaction goes on: a marker that came later could end another one of the same producer.
        """
        decided = {
            (image.producer_id, where)
            for image in images.values()
            if image.state is TransactionState.ONGOING or image.state in PREPARED
            for where in image.partitions
        }
        for orphan in self._markers.open_offsets():
            where = TopicPartition(self._offsets_log.name, orphan.log_partition)
            if (orphan.producer_id, where) not in decided:
                log.warning(
                    "offsets outside of a transaction dropped",
                    partition=orphan.log_partition,
                    producer_id=orphan.producer_id,
                )
                await self._markers.abort_offsets(orphan, self._log.leader_epoch_of(""))

    def unload(self, index: int) -> None:
        """Another broker leads that partition of the log: whoever waits here is sent there, and nothing more is done for its ids."""
        self._log.note_lost(index)
        lost = [name for name in self._drivers if self._log.partition_of(name) == index]
        for name in lost:
            driver = self._drivers.pop(name)
            self._by_producer.pop(driver.machine.image.producer_id, None)
            driver.give_up(NotCoordinator(f"transaction {name!r} is coordinated by another broker"))

    async def leader_of(self, transactional_id: str) -> str:
        """The broker that coordinates the transaction, where there are several. Makes their topic if need be."""
        return await self._log.leader_of(transactional_id)

    def known_leader_of(self, transactional_id: str) -> str:
        """The same; empty where nobody does."""
        return self._log.known_leader_of(transactional_id)

    def is_here(self, transactional_id: str) -> bool:
        """Whether this broker coordinates the transaction, and knows all about it."""
        return self._log.is_partition_loaded(self._log.partition_of(transactional_id))

    def is_led_here(self, transactional_id: str) -> bool:
        """Whether nobody else is to be asked about the transaction, though this broker may not know all about it yet."""
        return self._log.is_led_here(transactional_id)

    async def take_part(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: frozenset[TopicPartition],
        *,
        is_adding: bool,
        leader_epoch: int | None = None,
    ) -> PartTaken:
        """For the leader of `partitions`: make them part of the transaction, or say which are none.

        `leader_epoch` is that of the coordinator which is meant: another one is not it.
        """
        self._log.require_loaded(transactional_id)
        if leader_epoch is not None and self.epoch_of(transactional_id) != leader_epoch:
            raise NotCoordinator(f"transaction {transactional_id!r} is coordinated in another epoch by now")
        if is_adding:
            return PartTaken((await self.add_partitions(transactional_id, producer, partitions)).name, [])
        error = self.check_holder(transactional_id, producer)
        missing = self.not_added(transactional_id, producer, partitions)
        return PartTaken(error.name, sorted((each.topic, each.partition) for each in missing))

    def knows(self, producer_id: int) -> bool:
        """Whether a transaction of that producer is coordinated here."""
        return producer_id in self._by_producer

    async def stop(self) -> None:
        self._markers.stop()
        for driver in self._drivers.values():
            driver.stop()
        await self._log.stop()

    def _find(self, transactional_id: str) -> "_Driver | None":
        self._log.require_loaded(transactional_id)
        return self._drivers.get(transactional_id)

    def _host(self, transactional_id: str, machine: TransactionMachine) -> "_Driver":
        driver = _Driver(self, transactional_id, machine)
        self._drivers[transactional_id] = driver
        self._by_producer[machine.image.producer_id] = driver
        return driver

    # -- for drivers

    def persist(self, transactional_id: str, image: TransactionImage | None) -> Deferred[Appended]:
        return self._log.append(transactional_id, [records.encode(transactional_id, image)])

    def renumbered(self, driver: "_Driver", former_id: int) -> None:
        """Epochs ran out: the name goes on under another producer id."""
        self._by_producer.pop(former_id, None)
        self._by_producer[driver.machine.image.producer_id] = driver

    def forgotten(self, transactional_id: str) -> None:
        driver = self._drivers.pop(transactional_id, None)
        if driver is not None:
            self._by_producer.pop(driver.machine.image.producer_id, None)
            driver.stop()

    def epoch_of(self, transactional_id: str) -> int:
        """The epoch under which this node coordinates that transactional id."""
        return self._log.leader_epoch_of(transactional_id)

    @property
    def markers(self) -> Markers:
        return self._markers

    @property
    def clock(self) -> SteadyClock:
        return self._clock


def _unknown(transactional_id: str) -> TransactionError:
    """Nobody has this name; or it is none at all."""
    return TransactionError.INVALID_PRODUCER_ID_MAPPING if transactional_id else TransactionError.INVALID_REQUEST


class _Driver:
    """One transactional id: its machine, its timer, and the requests that wait for it."""

    def __init__(self, service: Transactions, transactional_id: str, machine: TransactionMachine) -> None:
        self.transactional_id = transactional_id
        self.machine = machine
        self.is_over = False
        self._service = service
        self._producers: Tickets[ProducerReply] = Tickets()
        self._requests: Tickets[TransactionError] = Tickets()
        self._alarm = Alarm(lambda: self._step(events.Tick()), service.clock)

    def init(self, event: events.Init) -> Deferred[ProducerReply]:
        return self._ask(event)

    def end(self, event: events.End) -> Deferred[ProducerReply]:
        return self._ask(event)

    def _ask(self, event: events.Init | events.End) -> Deferred[ProducerReply]:
        self._require_own()
        ticket, deferred = self._producers.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def request(self, event: events.AddPartitions | events.End) -> Deferred[TransactionError]:
        self._require_own()
        ticket, deferred = self._requests.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def resume(self) -> None:
        for action in self.machine.resume():
            self._perform(action)
        self._alarm.set(self.machine.next_deadline_ms)

    def stop(self) -> None:
        self._alarm.cancel()

    def give_up(self, error: HeadraceError) -> None:
        """Another broker coordinates it: whatever is still heard of it here does not count."""
        self.is_over = True
        self.stop()
        self._producers.reject_all(error)
        self._requests.reject_all(error)

    def _require_own(self) -> None:
        if self.is_over:
            raise NotCoordinator(f"transaction {self.transactional_id!r} is coordinated by another broker")

    def _step(self, event: events.Event) -> None:
        if self.is_over:
            return
        former_id = self.machine.image.producer_id
        for action in self.machine.step(event, now_ms=self._service.clock.now_ms()):
            self._perform(action)
        if self.machine.image.producer_id != former_id:
            self._service.renumbered(self, former_id)
        if self.machine.state is TransactionState.DEAD:
            self._service.forgotten(self.transactional_id)
        else:
            self._alarm.set(self.machine.next_deadline_ms)

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.AnswerProducer(ticket=ticket, error=error, producer=producer):
                self._producers.settle(ticket, ProducerReply(error=error, producer=producer))
            case events.Answer(ticket=ticket, error=error):
                self._requests.settle(ticket, error)
            case events.Persist(image=image):
                self._service.persist(self.transactional_id, image).then(self._persisted)
            case events.WriteMarkers():
                epoch = self._service.epoch_of(self.transactional_id)
                self._service.markers.write(
                    action, epoch, lambda: self._step(events.MarkersWritten()), is_over=lambda: self.is_over
                )
            case events.TimedOut(producer=producer):
                log.warning(
                    "transaction timed out",
                    transactional_id=self.transactional_id,
                    producer_id=producer.producer_id,
                    epoch=producer.epoch,
                )
            case _:
                assert_never(action)

    def _persisted(self, done: Deferred[Appended]) -> None:
        try:
            done.result()
        except HeadraceError as error:
            log.warning("transaction not persisted", transactional_id=self.transactional_id, reason=str(error))
            self._step(events.PersistFailed())
        else:
            self._step(events.Persisted())
