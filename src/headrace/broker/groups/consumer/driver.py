"""Performs what a KIP-848 group's machine asks for. Answers wait until what they are based on is durable."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic.requests import ClassicRequests, RequestAnswer, unavailable
from headrace.broker.groups.consumer import events
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.outcome import GroupError
from headrace.broker.hosting import Alarm, SteadyClock, Tickets
from headrace.errors import HeadraceError
from headrace.log.partition import Appended
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)

Store: TypeAlias = Callable[[events.GroupSnapshot], Deferred[Appended]]
Downgrade: TypeAlias = Callable[[], Deferred[Appended]]
"""Puts a classic group in this one's place and stores it."""
AnyAnswer: TypeAlias = events.Answer | RequestAnswer


class ConsumerDriver:
    def __init__(
        self, group_id: str, machine: ConsumerGroup, *, store: Store, downgrade: Downgrade, clock: SteadyClock
    ) -> None:
        self.group_id = group_id
        self.machine = machine
        self.requests = ClassicRequests(self._step)
        """Those of members that speak the classic protocol."""
        self._store = store
        self._downgrade = downgrade
        self._clock = clock
        self._is_over = False
        self._heartbeats: Tickets[events.HeartbeatReply] = Tickets()
        self._alarm = Alarm(lambda: self._step(events.Tick()), clock)
        self._alarm.set(machine.next_deadline_ms)

    def heartbeat(self, event: events.Heartbeat) -> Deferred[events.HeartbeatReply]:
        ticket, deferred = self._heartbeats.issue()
        self._step(msgspec.structs.replace(event, ticket=ticket))
        return deferred

    def topics_changed(self, topics: Mapping[str, events.TopicShape]) -> None:
        self._step(events.TopicsChanged(topics=topics))

    def stop(self) -> None:
        self._alarm.cancel()

    def give_up(self, error: HeadraceError) -> None:
        """As `ClassicDriver.give_up`."""
        self._is_over = True
        self.stop()
        self._heartbeats.reject_all(error)
        self.requests.reject_all(error)

    def _step(self, event: events.Event) -> None:
        if self._is_over:
            return
        answers: list[AnyAnswer] = []
        snapshot: events.GroupSnapshot | None = None
        is_over = False
        for action in self.machine.step(event, now_ms=self._clock.now_ms()):
            match action:
                case events.StoreGroup():
                    snapshot = action.snapshot
                case events.OnlyClassicLeft():
                    is_over = True
                case events.EpochStarted(epoch=epoch, reason=reason):
                    log.info("group epoch", group=self.group_id, epoch=epoch, reason=reason)
                case _:
                    answers.append(action)
        if is_over:
            self._downgrade().then(lambda done: self._stored(done, answers))
            return
        self._alarm.set(self.machine.next_deadline_ms)
        if snapshot is not None:
            self._store(snapshot).then(lambda done: self._stored(done, answers))
            return
        for answer in answers:
            self._settle(answer)

    def _stored(self, done: Deferred[Appended], answers: list[AnyAnswer]) -> None:
        try:
            done.result()
        except HeadraceError as reason:
            log.warning("group not stored", group=self.group_id, reason=str(reason))
            answers = [_unavailable(answer) for answer in answers]
        for answer in answers:
            self._settle(answer)

    def _settle(self, answer: AnyAnswer) -> None:
        if isinstance(answer, events.Answer):
            self._heartbeats.settle(answer.ticket, answer.reply)
        else:
            self.requests.settle(answer)


def _unavailable(answer: AnyAnswer) -> AnyAnswer:
    if not isinstance(answer, events.Answer):
        return unavailable(answer)
    reply = events.HeartbeatReply(error=GroupError.COORDINATOR_NOT_AVAILABLE, member_id=answer.reply.member_id)
    return events.Answer(ticket=answer.ticket, reply=reply)
