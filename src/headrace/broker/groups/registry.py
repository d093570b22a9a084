"""Every group by its id, of whichever kind it is right now, and its record in `__consumer_offsets`.

A group id has one kind of group at a time. An empty group takes the kind of whoever joins next. One with members
changes its kind with them in it (`migration`), as Apache Kafka does by default. The record of the former kind is
buried only after that of the new one is written: of two records, the later in the log counts.

Whoever looks for a group before the log has been read back hears `CoordinatorLoading`, not that there is none.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups import migration
from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.classic.driver import ClassicDriver
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.configs import GroupConfigs
from headrace.broker.groups.consumer import events as consumer
from headrace.broker.groups.consumer.driver import ConsumerDriver
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.consumer.topics import KnownTopics
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.hosting import SteadyClock
from headrace.broker.internal_topic import InternalTopic
from headrace.broker.offset_records import (
    ClassicGroupRecord,
    GroupRecord,
    encode_classic_group,
    encode_consumer_group,
)
from headrace.broker.topics import Topics
from headrace.errors import MalformedRequest, NotCoordinator
from headrace.log.partition import Appended
from headrace.records.record import NewRecord
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

Driver: TypeAlias = ClassicDriver | ConsumerDriver
Group: TypeAlias = ClassicGroup | ConsumerGroup


class GroupRegistry:
    def __init__(
        self,
        log_topic: InternalTopic,
        topics: Topics,
        clock: SteadyClock,
        settings: GroupSettings,
        configs: GroupConfigs,
    ) -> None:
        self._log = log_topic
        self._configs = configs
        configs.on_changed = self._reconfigure
        self._topics = topics
        self._clock = clock
        self._drivers: dict[str, Driver] = {}
        self._known = KnownTopics()
        self._known_revision = -1
        self._classic = ClassicSettings(
            initial_delay_ms=settings.initial_rebalance_delay_ms,
            session_timeout_ms_min=settings.session_timeout_ms_min,
            session_timeout_ms_max=settings.session_timeout_ms_max,
            members_max=settings.members_max,
        )
        self._consumer = ConsumerSettings(
            members_max=settings.members_max,
            classic_session_timeout_ms_min=settings.session_timeout_ms_min,
            classic_session_timeout_ms_max=settings.session_timeout_ms_max,
        )

    def get(self, group_id: str) -> Driver | None:
        self._log.require_loaded(group_id)
        return self._drivers.get(group_id)

    def __iter__(self) -> Iterator[str]:
        self._log.require_all_loaded()
        return iter(self._drivers)

    # -- topics

    def refresh_topics(self) -> None:
        """Look at the topics again if any came, went or grew, and let the groups hear of it."""
        if self._known_revision == self._topics.shape_revision:
            return
        self._known_revision = self._topics.shape_revision
        self._known.shapes = {
            str(topic.name): consumer.TopicShape(
                topic_id=bytes(topic.id),
                partition_count=len(topic.partitions),
                is_internal=topic.is_internal,
            )
            for topic in self._topics.all()
        }
        for driver in self._drivers.values():
            if isinstance(driver, ConsumerDriver):
                driver.topics_changed(self._known.shapes)

    # -- coming into being

    def start_classic(self, group_id: str) -> ClassicDriver:
        """A classic group without members, in place of nothing or of an empty group of the other kind."""
        former = self._drivers.get(group_id)
        driver = self._host_classic(group_id, self.empty_classic())
        if former is not None:
            self._bury(group_id, former)
        return driver

    def empty_classic(self) -> ClassicGroup:
        return ClassicGroup(self._classic, since_ms=self._clock.now_ms())

    def start_consumer(self, group_id: str, event: consumer.Heartbeat) -> Deferred[consumer.HeartbeatReply]:
        """The first member of the new protocol joins; whatever group there was goes on as one of that kind."""
        former = self._drivers.get(group_id)
        assert not isinstance(former, ConsumerDriver)
        if former is not None and former.machine.members and not migration.can_upgrade(former.machine):
            return Deferred.resolved(_not_a_consumer_group(group_id))
        try:
            refusal = self._try(self._consumer_instead_of(group_id, former), event)
            group = self._consumer_instead_of(group_id, former)
        except MalformedRequest as error:
            log.warning("group cannot be upgraded", group=group_id, reason=str(error))
            return Deferred.resolved(_not_a_consumer_group(group_id))
        if refusal is not None:
            return Deferred.resolved(refusal)
        driver = self._host_consumer(group_id, group)
        answer = driver.heartbeat(event)
        if former is not None:
            log.info("group upgraded", group=group_id, members=len(former.machine.members))
            former.hand_over()
            self._bury(group_id, former)
        return answer

    def _consumer_instead_of(self, group_id: str, former: ClassicDriver | None) -> ConsumerGroup:
        now_ms = self._clock.now_ms()
        snapshot = consumer.GroupSnapshot(epoch=0, target_epoch=0, since_ms=now_ms, members=())
        if former is not None and former.machine.members:
            snapshot = migration.upgraded(former.machine, self._known)
        return self._restored_consumer(group_id, snapshot)

    def _try(self, group: ConsumerGroup, event: consumer.Heartbeat) -> consumer.HeartbeatReply | None:
        """A request that is going to be refused must not change the kind of the group; `group` is used up."""
        *_, answer = group.step(event, now_ms=self._clock.now_ms())
        assert isinstance(answer, consumer.Answer)
        return None if answer.reply.error is GroupError.NONE else answer.reply

    def _downgrade(self, group_id: str) -> Deferred[Appended]:
        """Only members that speak the classic protocol are left."""
        former = self._drivers[group_id]
        assert isinstance(former, ConsumerDriver)
        log.info("group downgraded", group=group_id, members=len(former.machine.members))
        former.stop()
        snapshot = migration.downgraded(former.machine, self._known, now_ms=self._clock.now_ms())
        stored = self._store_classic(group_id, snapshot)
        self._bury(group_id, former)
        driver = self._host_classic(group_id, self._restored_classic(snapshot))
        driver.rebalance("the last member of the consumer protocol is gone")
        return stored

    # -- keeping

    def restore(self, record: GroupRecord) -> None:
        """Bring back what an earlier life stored."""
        assert record.snapshot is not None
        if isinstance(record, ClassicGroupRecord):
            self._host_classic(record.group, self._restored_classic(record.snapshot))
        else:
            self._host_consumer(record.group, self._restored_consumer(record.group, record.snapshot))

    def remove(self, group_id: str) -> None:
        driver = self._drivers.pop(group_id, None)
        if driver is not None:
            driver.stop()
            self._bury(group_id, driver)

    def unload(self, index: int) -> None:
        """Groups of that partition of the log are another broker's."""
        lost = [name for name in self._drivers if self._log.partition_of(name) == index]
        for name in lost:
            self._drivers.pop(name).give_up(NotCoordinator(f"group {name!r} is looked after by another broker"))

    def stop(self) -> None:
        for driver in self._drivers.values():
            driver.stop()

    def _restored_classic(self, snapshot: classic.GroupSnapshot) -> ClassicGroup:
        return ClassicGroup.restore(snapshot, settings=self._classic, now_ms=self._clock.now_ms())

    def _restored_consumer(self, group_id: str, snapshot: consumer.GroupSnapshot) -> ConsumerGroup:
        settings = self._consumer_settings(group_id)
        return ConsumerGroup.restore(
            snapshot, settings=settings, topics=self._known.shapes, now_ms=self._clock.now_ms()
        )

    def _consumer_settings(self, group_id: str) -> ConsumerSettings:
        return msgspec.structs.replace(
            self._consumer,
            heartbeat_interval_ms=self._configs.heartbeat_interval_ms(group_id),
            session_timeout_ms=self._configs.session_timeout_ms(group_id),
        )

    def _reconfigure(self, group_id: str) -> None:
        driver = self._drivers.get(group_id)
        if isinstance(driver, ConsumerDriver):
            driver.machine.use(self._consumer_settings(group_id))

    def _host_classic(self, group_id: str, machine: ClassicGroup) -> ClassicDriver:
        driver = ClassicDriver(
            group_id,
            machine,
            store=lambda snapshot: self._store_classic(group_id, snapshot),
            clock=self._clock,
        )
        self._drivers[group_id] = driver
        return driver

    def _host_consumer(self, group_id: str, machine: ConsumerGroup) -> ConsumerDriver:
        driver = ConsumerDriver(
            group_id,
            machine,
            store=lambda snapshot: self._log.append(group_id, [encode_consumer_group(group_id, snapshot)]),
            downgrade=lambda: self._downgrade(group_id),
            clock=self._clock,
        )
        self._drivers[group_id] = driver
        return driver

    def _store_classic(self, group_id: str, snapshot: classic.GroupSnapshot) -> Deferred[Appended]:
        return self._log.append(group_id, [encode_classic_group(group_id, snapshot)])

    def _bury(self, group_id: str, former: Driver) -> None:
        former.stop()
        self._log.append(group_id, [_tombstone(group_id, former.machine)]).then(_ignore)


def keep_latest(found: dict[str, GroupRecord], record: GroupRecord) -> None:
    """While the log is replayed: the last snapshot counts, unless it was buried afterwards."""
    if record.snapshot is not None:
        found[record.group] = record
    elif record.group in found and type(found[record.group]) is type(record):
        del found[record.group]


def _tombstone(group_id: str, group: Group) -> NewRecord:
    if isinstance(group, ClassicGroup):
        return encode_classic_group(group_id, None)
    return encode_consumer_group(group_id, None)


def _not_a_consumer_group(group_id: str) -> consumer.HeartbeatReply:
    message = f"Group {group_id} is not a consumer group."
    return consumer.HeartbeatReply(error=GroupError.GROUP_ID_NOT_FOUND, message=message)


def _ignore(settled: Deferred[Appended]) -> None:
    """A tombstone that is not written leaves an empty group behind, which expires again."""
