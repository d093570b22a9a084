"""The classic consumer group as a machine: requests and time in, answers and things to store out.

Members sync, report and leave here; `joining` is how they come, and `cycle` has the states of the group and what
leads from one to the next.

Assignments and metadata are opaque bytes, so eager and cooperative rebalancing are the same to us.
"""

from typing import assert_never

from headrace.broker.groups.classic.cycle import GroupState, RebalanceCycle, refuse_sync
from headrace.broker.groups.classic.events import (
    Action,
    AnswerHeartbeat,
    AnswerLeave,
    AnswerSync,
    Departure,
    DepartureReply,
    Event,
    GroupSnapshot,
    HandOver,
    Heartbeat,
    Join,
    Leave,
    Rebalance,
    Stored,
    StoreFailed,
    Sync,
    SyncReply,
    Tick,
)
from headrace.broker.groups.classic.joining import Joining
from headrace.broker.groups.classic.member import Member
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.outcome import GroupError


class ClassicGroup:
    def __init__(
        self, settings: ClassicSettings | None = None, *, since_ms: int = 0, cycle: RebalanceCycle | None = None
    ) -> None:
        settings = settings or ClassicSettings()
        self._cycle = cycle or RebalanceCycle(initial_delay_ms=settings.initial_delay_ms, since_ms=since_ms)
        self._joining = Joining(self._cycle, settings)
        self._wake_ms: int | None = None

    @property
    def state(self) -> GroupState:
        return self._cycle.state

    @property
    def generation(self) -> int:
        return self._cycle.generation

    @property
    def protocol_type(self) -> str | None:
        return self._cycle.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._cycle.protocol_name

    @property
    def since_ms(self) -> int:
        """When the present state began; offsets of an empty group age from here."""
        return self._cycle.since_ms

    @property
    def members(self) -> dict[str, Member]:
        return self._cycle.roster.members

    @property
    def leader_id(self) -> str | None:
        return self._cycle.roster.leader_id

    # -- driving

    def step(self, event: Event, *, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Join():
                self._joining.join(event, now_ms, actions)
            case Sync():
                self._sync(event, now_ms, actions)
            case Heartbeat():
                actions.append(AnswerHeartbeat(ticket=event.ticket, error=self._heartbeat(event, now_ms)))
                return actions  # A heartbeat only moves a deadline further away.
            case Leave():
                self._leave(event, now_ms, actions)
            case Tick():
                self._tick(now_ms, actions)
            case Rebalance():
                self._cycle.rebalance(event.reason, now_ms, actions)
            case HandOver():
                self._cycle.dissolve(actions)
            case Stored():
                self._cycle.stored(event.generation, now_ms, actions)
            case StoreFailed():
                self._cycle.store_failed(event.generation, now_ms, actions)
            case _:
                assert_never(event)
        self._set_wake()
        return actions

    @property
    def next_deadline_ms(self) -> int | None:
        """Not later than the next moment at which `Tick` has something to do.

        A lower bound of every deadline, so that a heartbeat need not look at all members.
        """
        return self._wake_ms

    def _set_wake(self) -> None:
        self._wake_ms = min((*self._cycle.timers.deadlines(), *self._cycle.roster.deadlines()), default=None)

    # -- sync, heartbeat, leave

    def _sync(self, event: Sync, now_ms: int, actions: list[Action]) -> None:
        error = self._check_generation(event.member_id, event.instance_id, event.generation)
        if error is GroupError.NONE and not self._is_our_protocol(event):
            error = GroupError.INCONSISTENT_GROUP_PROTOCOL
        if error is GroupError.NONE and self.state is GroupState.PREPARING:
            error = GroupError.REBALANCE_IN_PROGRESS
        if error is not GroupError.NONE:
            actions.append(AnswerSync(ticket=event.ticket, reply=SyncReply(error=error)))
            return
        member = self.members[event.member_id]
        member.has_synced = True
        member.renew(now_ms)
        if self.state is GroupState.STABLE:
            actions.append(AnswerSync(ticket=event.ticket, reply=self._cycle.sync_reply(member)))
            return
        refuse_sync(member, GroupError.REBALANCE_IN_PROGRESS, actions)
        member.sync_ticket = event.ticket
        if event.member_id == self.leader_id:
            self._cycle.assign(event.assignments, actions)

    def _is_our_protocol(self, event: Sync) -> bool:
        is_type_ours = event.protocol_type in (None, self.protocol_type)
        return is_type_ours and event.protocol_name in (None, self.protocol_name)

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> GroupError:
        error = self._check_generation(event.member_id, event.instance_id, event.generation)
        if error is not GroupError.NONE:
            return error
        self.members[event.member_id].renew(now_ms)
        return GroupError.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else GroupError.NONE

    def _leave(self, event: Leave, now_ms: int, actions: list[Action]) -> None:
        replies = tuple(
            DepartureReply(
                member_id=each.member_id,
                instance_id=each.instance_id,
                error=self._depart(each, actions),
            )
            for each in event.departures
        )
        actions.append(AnswerLeave(ticket=event.ticket, replies=replies))
        if any(each.error is GroupError.NONE for each in replies):
            self._cycle.after_departure("members left", now_ms, actions)

    def _depart(self, departure: Departure, actions: list[Action]) -> GroupError:
        roster = self._cycle.roster
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if departure.instance_id is None and roster.is_expected(departure.member_id):
            roster.forget_expected(departure.member_id)
            return GroupError.NONE
        member_id = departure.member_id
        static = roster.find_static(departure.instance_id)
        if static is not None and member_id == "":
            member_id = static.member_id  # An operator removes a static member by the only name it knows.
        error = self._cycle.check_member(member_id, departure.instance_id)
        if error is GroupError.NONE:
            self._cycle.remove(self.members[member_id], GroupError.UNKNOWN_MEMBER_ID, actions)
        return error

    # -- time

    def _tick(self, now_ms: int, actions: list[Action]) -> None:
        timers = self._cycle.timers
        is_smaller = self._cycle.roster.drop_late(now_ms)
        is_smaller |= self._expire_sessions(now_ms, actions)
        if timers.sync_deadline_ms is not None and timers.sync_deadline_ms <= now_ms:
            is_smaller |= self._cycle.remove_idle(actions)
        if is_smaller:
            self._cycle.after_departure("members fell silent", now_ms, actions)
        if timers.join_deadline_ms is not None and timers.join_deadline_ms <= now_ms:
            self._cycle.join_deadline_reached(now_ms, actions)

    def _expire_sessions(self, now_ms: int, actions: list[Action]) -> bool:
        before = len(self.members)
        for member in self._cycle.roster:
            if member.deadline_ms > now_ms:
                continue
            if member.is_waiting and not member.is_new:
                member.renew(now_ms)  # It waits for us; its silence is our doing.
            else:
                self._cycle.remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        return len(self.members) < before

    # -- checks

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        error = self._cycle.check_member(member_id, instance_id)
        if error is GroupError.NONE and generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return error

    def check_commit(
        self, *, member_id: str, instance_id: str | None, generation: int, in_transaction: bool, now_ms: int
    ) -> GroupError:
        """May this commit offsets? A yes also counts as a sign of life."""
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        is_anonymous = generation < 0 and member_id == "" and instance_id is None
        if is_anonymous and (in_transaction or not self.members):
            return GroupError.NONE
        if generation < 0 and not self.members:
            return GroupError.NONE
        error = self._check_generation(member_id, instance_id, generation)
        if error is not GroupError.NONE:
            return error
        if self.state is GroupState.COMPLETING and not in_transaction:
            # The assignment these offsets came from is history, and the next one is not known yet.
            return GroupError.REBALANCE_IN_PROGRESS
        self.members[member_id].renew(now_ms)
        return GroupError.NONE

    # -- keeping

    def retire(self) -> GroupError:
        """Delete the group; only an empty one lets go."""
        if self.state is GroupState.DEAD:
            return GroupError.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return GroupError.NON_EMPTY_GROUP
        self._cycle.state = GroupState.DEAD
        return GroupError.NONE

    def snapshot(self) -> GroupSnapshot:
        return self._cycle.snapshot()

    @classmethod
    def restore(cls, snapshot: GroupSnapshot, *, settings: ClassicSettings, now_ms: int) -> "ClassicGroup":
        """A coordinator takes over: members keep their assignment and get a full session to report."""
        cycle = RebalanceCycle.restore(snapshot, initial_delay_ms=settings.initial_delay_ms, now_ms=now_ms)
        group = cls(settings, cycle=cycle)
        group._set_wake()
        return group

    def check_invariants(self) -> None:
        self._cycle.check_invariants()
