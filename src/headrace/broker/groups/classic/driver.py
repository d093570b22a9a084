"""Performs what a classic group's machine asks for: answers requests, stores snapshots, keeps its timer."""

from collections.abc import Callable
from typing import TypeAlias

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic import events
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.requests import ClassicRequests
from headrace.broker.hosting import Alarm, SteadyClock
from headrace.errors import HeadraceError
from headrace.log.partition import Appended
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

Store: TypeAlias = Callable[[events.GroupSnapshot], Deferred[Appended]]


class ClassicDriver:
    def __init__(self, group_id: str, machine: ClassicGroup, *, store: Store, clock: SteadyClock) -> None:
        self.group_id = group_id
        self.machine = machine
        self.requests = ClassicRequests(self._step)
        self._store = store
        self._clock = clock
        self._is_over = False
        self._alarm = Alarm(lambda: self._step(events.Tick()), clock)
        self._alarm.set(machine.next_deadline_ms)

    def rebalance(self, reason: str) -> None:
        self._step(events.Rebalance(reason=reason))

    def hand_over(self) -> None:
        """The group goes on under another driver; whoever waits here joins again there."""
        self._step(events.HandOver())
        self.stop()

    def stop(self) -> None:
        self._alarm.cancel()

    def give_up(self, error: HeadraceError) -> None:
        """Another broker has the group: nothing that is still heard of it here counts, and whoever waits looks for that one."""
        self._is_over = True
        self.stop()
        self.requests.reject_all(error)

    def _step(self, event: events.Event) -> None:
        if self._is_over:
            return
        for action in self.machine.step(event, now_ms=self._clock.now_ms()):
            self._perform(action)
        self._alarm.set(self.machine.next_deadline_ms)

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.StoreGroup(snapshot=snapshot):
                self._store(snapshot).then(lambda done: self._stored(snapshot.generation, done))
            case events.RebalanceStarted(reason=reason):
                log.info("group rebalances", group=self.group_id, reason=reason)
            case events.GenerationStarted(generation=generation, member_count=count):
                log.info("group generation", group=self.group_id, generation=generation, members=count)
            case _:
                self.requests.settle(action)

    def _stored(self, generation: int, done: Deferred[Appended]) -> None:
        try:
            done.result()
        except HeadraceError as error:
            log.warning("group not stored", group=self.group_id, reason=str(error))
            self._step(events.StoreFailed(generation=generation))
        else:
            self._step(events.Stored(generation=generation))
