"""Requests of classic members that wait for their answers, in a group of either kind."""

from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic import events
from headrace.broker.groups.outcome import GroupError
from headrace.broker.hosting import Tickets
from headrace.errors import HeadraceError

Request: TypeAlias = events.Join | events.Sync | events.Heartbeat | events.Leave
RequestAnswer: TypeAlias = events.AnswerJoin | events.AnswerSync | events.AnswerHeartbeat | events.AnswerLeave


class ClassicRequests:
    def __init__(self, step: Callable[[Request], None]) -> None:
        """`step` takes the event to the group's machine, under the ticket it has been given here."""
        self._step = step
        self._joins: Tickets[events.JoinReply] = Tickets()
        self._syncs: Tickets[events.SyncReply] = Tickets()
        self._heartbeats: Tickets[GroupError] = Tickets()
        self._leaves: Tickets[tuple[events.DepartureReply, ...]] = Tickets()

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

    def reject_all(self, error: HeadraceError) -> None:
        for tickets in (self._joins, self._syncs, self._heartbeats, self._leaves):
            tickets.reject_all(error)

    def settle(self, answer: RequestAnswer) -> None:
        match answer:
            case events.AnswerJoin(ticket=ticket, reply=join_reply):
                self._joins.settle(ticket, join_reply)
            case events.AnswerSync(ticket=ticket, reply=sync_reply):
                self._syncs.settle(ticket, sync_reply)
            case events.AnswerHeartbeat(ticket=ticket, error=error):
                self._heartbeats.settle(ticket, error)
            case events.AnswerLeave(ticket=ticket, replies=replies):
                self._leaves.settle(ticket, replies)
            case _:
                assert_never(answer)


def unavailable(answer: RequestAnswer) -> RequestAnswer:
    """Instead of `answer`, for a client that shall find its coordinator again and repeat."""
    error = GroupError.COORDINATOR_NOT_AVAILABLE
    match answer:
        case events.AnswerJoin(ticket=ticket, reply=reply):
            return events.AnswerJoin(ticket=ticket, reply=events.JoinReply(error=error, member_id=reply.member_id))
        case events.AnswerSync(ticket=ticket):
            return events.AnswerSync(ticket=ticket, reply=events.SyncReply(error=error))
        case events.AnswerHeartbeat(ticket=ticket):
            return events.AnswerHeartbeat(ticket=ticket, error=error)
        case events.AnswerLeave(ticket=ticket, replies=replies):
            refused = tuple(msgspec.structs.replace(each, error=error) for each in replies)
            return events.AnswerLeave(ticket=ticket, replies=refused)
        case _:
            assert_never(answer)
