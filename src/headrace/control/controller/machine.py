"""Which brokers may lead, and who leads instead of one that may not: from what was heard and when.

States of a broker, kept in its registration:

- STARTING: it has a broker epoch and reads the cluster's topics; no door is open. It keeps what it leads for one session, so that a quick
  restart moves nothing, and then only while nobody else could lead.
- ACTIVE: it said that it is ready. Only active brokers get partitions.
- DRAINING: it is about to stop, and still serves. What can be led elsewhere is moved away, a few partitions at a time: the next when
  others have opened those before, so that each is without a leader only for as long as it takes to open a few.
- FENCED: its broker epoch is over. It comes back with another.

Rules:

- A broker that was not heard for a session is fenced. So is one whose process is known to be gone.
- Every controller hears every broker, also while another one decides: whoever takes over knows how long a broker has been silent.
  One that it never heard may be starting beside it, and has longer.
- Time in which the controller itself did not run counts for nobody.
- Partitions of `object` topics can be led by anybody. So can one of a `wal` topic while object storage has all of it, or once its WAL was given
  up. Otherwise it waits: for its broker, or for another that takes over its WAL (`takeovers.py`).

Decisions are wishes: they are given at every tick until the store shows that they came true. Nothing rests on them being carried
out once, or in time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import msgspec

from headrace.control import values_pb2 as pb
from headrace.control.placement import spread
from headrace.control.plans import PartitionName
from headrace.control.topics import ClusterTopics, PartitionEntry, TopicEntry
from headrace.control.values import DURABILITY
from headrace.control.wal_plans import is_in_ring, is_on_wal

OBJECT: Final = "object"
HANDED_OVER_AT_ONCE: Final = 64
"""Partitions of a broker that is about to stop, on their way to others."""


class State(IntEnum):
    """`BrokerState` of the registration."""

    ACTIVE = pb.ACTIVE
    STARTING = pb.STARTING
    DRAINING = pb.DRAINING
    DRAINED = pb.DRAINED
    FENCED = pb.FENCED


class Timing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    heartbeat_ms: int = 300
    session_ms: int = 2_000
    """Silence after which a broker is fenced."""
    unheard_ms: int = 6_000
    """The same for one that this controller has never heard: it may have started just before the broker."""
    late_ms: int = 150
    """A heartbeat that is so much overdue is worth a look whether anybody still listens where the broker did."""
    tick_ms: int = 100
    deaf_ms: int = 500
    """A pulse that comes later than this was held up, and so was everything there was to hear."""


DEFAULT_TIMING: Final = Timing()


class SetState(msgspec.Struct, frozen=True, gc=False):
    """Give this incarnation of a broker another state. FENCED also takes its epoch away."""

    broker_id: str
    broker_epoch: int
    state: State
    reason: str


@dataclass(slots=True)
class _Broker:
    epoch: int
    state: State
    since_ms: int
    """When this controller first saw this epoch."""
    heard_ms: int | None = None
    wish: State | None = None
    is_gone: bool = False


@dataclass(slots=True)
class Machine:
    timing: Timing = DEFAULT_TIMING
    _brokers: dict[str, _Broker] = field(default_factory=dict)
    _pulse_ms: int | None = None

    def registered(self, broker_id: str, epoch: int, state: State, *, now_ms: int) -> None:
        """What the store says of a broker. News that are older than what is known change nothing."""
        known = self._brokers.get(broker_id)
        if known is None or epoch > known.epoch:
            self._brokers[broker_id] = _Broker(epoch, state, since_ms=now_ms)
        elif epoch == known.epoch:
            known.state = state
            if known.wish == state:
                known.wish = None

    def removed(self, broker_id: str) -> None:
        self._brokers.pop(broker_id, None)

    def heard(self, broker_id: str, epoch: int, *, now_ms: int, is_ready: bool = False) -> bool | None:
        """Whether this incarnation is the newest and not fenced; None of a broker that is not registered, as far as is known."""
        broker = self._brokers.get(broker_id)
        if broker is None or epoch > broker.epoch:
            return None
        if epoch < broker.epoch or broker.state == State.FENCED:
            return False
        broker.heard_ms = now_ms
        if is_ready and broker.state == State.STARTING and broker.wish is None:
            broker.wish = State.ACTIVE
        return True

    def leaves(self, broker_id: str, epoch: int) -> None:
        """It is about to stop."""
        if (broker := self._incarnation(broker_id, epoch)) is not None and broker.state != State.DRAINING:
            broker.wish = State.DRAINING

    def gone(self, broker_id: str, epoch: int) -> None:
        """Its process is known to be no more."""
        if (broker := self._incarnation(broker_id, epoch)) is not None:
            broker.is_gone = True

    def is_alive(self, broker_id: str, *, now_ms: int) -> bool:
        """Whether it was heard within a session."""
        broker = self._brokers.get(broker_id)
        return (
            broker is not None
            and broker.state != State.FENCED
            and broker.heard_ms is not None
            and now_ms - broker.heard_ms <= self.timing.session_ms
        )

    def silent_ms(self, broker_id: str, *, now_ms: int) -> int | None:
        """For how long it was not heard here, at least; None of one that is not registered."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            return None
        return now_ms - (broker.since_ms if broker.heard_ms is None else broker.heard_ms)

    def silent(self, *, now_ms: int) -> Iterator[tuple[str, int]]:
        """Active brokers, with their epochs, of which a heartbeat is overdue: worth a look whether their process is gone."""
        for name, broker in self._brokers.items():
            quiet_ms = now_ms - (broker.since_ms if broker.heard_ms is None else broker.heard_ms)
            if broker.state == State.ACTIVE and quiet_ms > self.timing.heartbeat_ms + self.timing.late_ms:
                yield name, broker.epoch

    def pulse(self, *, now_ms: int) -> None:
        """Called every `tick_ms`, whatever else is waited for: a pulse that comes late shows that nothing was heard meanwhile."""
        late_ms = 0 if self._pulse_ms is None else now_ms - self._pulse_ms - self.timing.tick_ms
        self._pulse_ms = now_ms
        if late_ms < self.timing.deaf_ms:
            return
        for broker in self._brokers.values():
            broker.since_ms += late_ms
            if broker.heard_ms is not None:
                broker.heard_ms = min(now_ms, broker.heard_ms + late_ms)

    def tick(self, *, now_ms: int) -> list[SetState]:
        """What is to change about brokers now. Only the active controller can do it."""
        self.pulse(now_ms=now_ms)
        return [
            SetState(name, broker.epoch, *wanted)
            for name, broker in self._brokers.items()
            if (wanted := self._wanted(broker, now_ms)) is not None
        ]

    def moves(self, topics: ClusterTopics, *, now_ms: int) -> dict[PartitionName, str]:
        """New leaders for partitions whose leader may not lead them, where anybody can."""
        led_by = {name: 0 for name, each in self._brokers.items() if each.state == State.ACTIVE and not each.is_gone}
        if not led_by:
            return {}
        homeless: list[PartitionName] = []
        leaving: list[PartitionName] = []
        under_way = 0
        for topic in topics:
            for entry in topic.partitions:
                if entry.leader in led_by:
                    led_by[entry.leader] += 1
                    under_way += not is_open(entry)
            orphans = [
                index
                for index, each in enumerate(topic.partitions)
                if can_move(topic, each) and self._is_orphan(each.leader, now_ms)
            ]
            for index in orphans:
                is_served = self._is_leaving(topic.partitions[index].leader)
                (leaving if is_served else homeless).append((topic.name, index))
        homeless += leaving[: max(HANDED_OVER_AT_ONCE - under_way, 0)]
        return dict(zip(homeless, spread(len(homeless), led_by), strict=True))

    def left_to_hand_over(self, broker_id: str, topics: ClusterTopics) -> int:
        """Partitions that a broker which is about to stop should still wait for: its own, and those that others have not opened."""
        takers = {name for name, each in self._brokers.items() if each.state == State.ACTIVE and not each.is_gone}
        if not takers - {broker_id}:
            return 0
        return sum(
            each.leader == broker_id or (each.leader in takers and not is_open(each))
            for topic in topics
            for each in topic.partitions
            if can_move(topic, each) or is_on_wal(topic.overrides)
        )

    def check_invariants(self) -> None:
        for broker in self._brokers.values():
            assert broker.wish != broker.state
            assert broker.wish in (None, State.ACTIVE, State.DRAINING)

    def _incarnation(self, broker_id: str, epoch: int) -> _Broker | None:
        broker = self._brokers.get(broker_id)
        return broker if broker is not None and broker.epoch == epoch else None

    def _wanted(self, broker: _Broker, now_ms: int) -> tuple[State, str] | None:
        if broker.state == State.FENCED:
            return None
        if broker.is_gone:
            return State.FENCED, "its process is gone"
        if broker.heard_ms is None:
            if now_ms - broker.since_ms > self.timing.unheard_ms:
                return State.FENCED, f"never heard in {now_ms - broker.since_ms} ms"
        elif now_ms - broker.heard_ms > self.timing.session_ms:
            return State.FENCED, f"not heard for {now_ms - broker.heard_ms} ms"
        if broker.wish is None:
            return None
        return broker.wish, "it is ready" if broker.wish == State.ACTIVE else "it is about to stop"

    def _is_leaving(self, leader: str) -> bool:
        broker = self._brokers.get(leader)
        return broker is not None and broker.state == State.DRAINING and not broker.is_gone

    def _is_orphan(self, leader: str, now_ms: int) -> bool:
        broker = self._brokers.get(leader)
        if broker is None or broker.is_gone:
            return True
        if broker.state == State.STARTING:
            return now_ms - broker.since_ms > self.timing.session_ms
        return broker.state != State.ACTIVE


def can_move(topic: TopicEntry, partition: PartitionEntry) -> bool:
    """Whether anybody can lead it next, who has never heard of it."""
    if is_on_wal(topic.overrides):
        return not is_in_ring(partition)
    return topic.overrides.get(DURABILITY) == OBJECT


def is_open(partition: PartitionEntry) -> bool:
    """Whether its leader has said where its epoch begins: it takes records from there on."""
    return any(epoch == partition.leader_epoch for epoch, _ in partition.epoch_starts)
