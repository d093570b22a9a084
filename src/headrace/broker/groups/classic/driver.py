"""Performs what a classic group's machine asks for: answers requests, stores snapshots, keeps its timer."""

from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic import events
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.outcome import GroupError
from headrace.broker.hosting import Alarm, SteadyClock, Tickets
from headrace.errors import HeadraceError
from headrace.log.partition import Appended
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

Store: TypeAlias = Callable[[events.GroupSnapshot], Deferred[Appended]]


class ClassicDriver:
    def __init__(self, group_id: str, machine: ClassicGroup, *, store: Store, clock: SteadyClock) -> None:
        self.group_id = group_id
        self.machine = machine
        self._store = store
        self._clock = clock
        self._joins: Tickets[events.JoinReply] = Tickets()
        self._syncs: Tickets[events.SyncReply] = Tickets()
        self._heartbeats: Tickets[GroupError] = Tickets()
        self._leaves: Tickets[tuple[events.DepartureReply, ...]] = Tickets()
        self._alarm = Alarm(lambda: self._step(events.Tick()), clock)
        self._alarm.set(machine.next_deadline_ms)

    def join(self, event: events.Join) -> Deferred[events.JoinReply]:
        ticket, deferred = self._joins.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def sync(self, event: events.Sync) -> Deferred[events.SyncReply]:
        ticket, deferred = self._syncs.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def heartbeat(self, event: events.Heartbeat) -> Deferred[GroupError]:
        ticket, deferred = self._heartbeats.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def leave(self, event: events.Leave) -> Deferred[tuple[events.DepartureReply, ...]]:
        ticket, deferred = self._leaves.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def stop(self) -> None:
        self._alarm.cancel()

    def _step(self, event: events.Event) -> None:
        for action in self.machine.step(event, now_ms=self._clock.now_ms()):
            self._perform(action)
        self._alarm.set(self.machine.next_deadline_ms)

    def _perform(self, action: events.Action) -> None:
        match action:
            case events.AnswerJoin(ticket=ticket, reply=reply):
                self._joins.settle(ticket, reply)
            case events.AnswerSync(ticket=ticket, reply=sync_reply):
                self._syncs.settle(ticket, sync_reply)
            case events.AnswerHeartbeat(ticket=ticket, error=error):
                self._heartbeats.settle(ticket, error)
            case events.AnswerLeave(ticket=ticket, replies=replies):
                self._leaves.settle(ticket, replies)
            case events.StoreGroup(snapshot=snapshot):
                self._store(snapshot).then(lambda done: self._stored(snapshot.generation, done))
            case events.RebalanceStarted(reason=reason):
                log.info("group rebalances", group=self.group_id, reason=reason)
            case events.GenerationStarted(generation=generation, member_count=count):
                log.info("group generation", group=self.group_id, generation=generation, members=count)
            case _:
                assert_never(action)

    def _stored(self, generation: int, done: Deferred[Appended]) -> None:
        try:
            done.result()
        except HeadraceError as error:
            log.warning("group not stored", group=self.group_id, reason=str(error))
            self._step(events.StoreFailed(generation=generation))
        else:
            self._step(events.Stored(generation=generation))
