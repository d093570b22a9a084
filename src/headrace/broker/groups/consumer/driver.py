"""Performs what a KIP-848 group's machine asks for. Answers wait until what they are based on is durable."""

from collections.abc import Callable, Mapping
from typing import TypeAlias, assert_never

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.consumer import events
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.outcome import GroupError
from headrace.broker.hosting import Alarm, SteadyClock, Tickets
from headrace.errors import HeadraceError
from headrace.log.partition import Appended
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

Store: TypeAlias = Callable[[events.GroupSnapshot], Deferred[Appended]]


class ConsumerDriver:
    def __init__(self, group_id: str, machine: ConsumerGroup, *, store: Store, clock: SteadyClock) -> None:
        self.group_id = group_id
        self.machine = machine
        self._store = store
        self._clock = clock
        self._tickets: Tickets[events.HeartbeatReply] = Tickets()
        self._alarm = Alarm(lambda: self._step(events.Tick()), clock)
        self._alarm.set(machine.next_deadline_ms)

    def heartbeat(self, event: events.Heartbeat) -> Deferred[events.HeartbeatReply]:
        ticket, deferred = self._tickets.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def topics_changed(self, topics: Mapping[str, events.TopicShape]) -> None:
        self._step(events.TopicsChanged(topics=topics))

    def stop(self) -> None:
        self._alarm.cancel()

    def _step(self, event: events.Event) -> None:
        answers: list[events.Answer] = []
        snapshot: events.GroupSnapshot | None = None
        for action in self.machine.step(event, now_ms=self._clock.now_ms()):
            match action:
                case events.Answer():
                    answers.append(action)
                case events.StoreGroup():
                    snapshot = action.snapshot
                case events.EpochStarted(epoch=epoch, reason=reason):
                    log.info("group epoch", group=self.group_id, epoch=epoch, reason=reason)
                case _:
                    assert_never(action)
        if snapshot is None:
            for answer in answers:
                self._tickets.settle(answer.ticket, answer.reply)
        else:
            self._store(snapshot).then(lambda done: self._stored(done, answers))
        self._alarm.set(self.machine.next_deadline_ms)

    def _stored(self, done: Deferred[Appended], answers: list[events.Answer]) -> None:
        error = GroupError.NONE
        try:
            done.result()
        except HeadraceError as reason:
            log.warning("group not stored", group=self.group_id, reason=str(reason))
            error = GroupError.COORDINATOR_NOT_AVAILABLE
        for answer in answers:
            reply = answer.reply
            if error is not GroupError.NONE:
                reply = events.HeartbeatReply(error=error, member_id=reply.member_id)
            self._tickets.settle(answer.ticket, reply)
