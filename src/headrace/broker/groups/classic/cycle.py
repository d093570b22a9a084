"""The cycle of a classic group, from one generation to the next, whatever set it in motion.

States:

- `EMPTY`: no members; committed offsets may remain. The first to join starts a rebalance that waits
  `initial_delay_ms` for company, and longer while company keeps arriving.
- `PREPARING`: collecting joins. Ends when every member has joined, or at the rebalance deadline; dynamic members
  that did not come are dropped, static ones are kept until their session ends.
- `COMPLETING`: a new generation has been announced; followers wait in sync for the leader's assignment.
- `STABLE`: everybody has an assignment and heartbeats.
- `DEAD`: deleted; every request is told to look for its coordinator again.

An assignment is handed out only once the group is durable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from headrace.broker.groups.classic.events import (
    Action,
    AnswerJoin,
    AnswerSync,
    GenerationStarted,
    GroupSnapshot,
    JoinReply,
    RebalanceStarted,
    StoreGroup,
    SyncReply,
)
from headrace.broker.groups.classic.member import Member
from headrace.broker.groups.classic.roster import Roster
from headrace.broker.groups.classic.timers import RebalanceTimers
from headrace.broker.groups.outcome import GroupError


class GroupState(Enum):
    """Values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True)
class RebalanceCycle:
    initial_delay_ms: int
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    since_ms: int = 0
    """When the present state began."""
    roster: Roster = field(default_factory=Roster)
    timers: RebalanceTimers = field(default_factory=RebalanceTimers)
    _is_storing: bool = False

    # -- collecting joins

    def rebalance(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        if self.state is not GroupState.PREPARING:
            self._prepare(reason, now_ms, actions)
        self._complete_if_all_joined(now_ms, actions)

    def after_departure(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.rebalance(reason, now_ms, actions)
        elif self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now_ms, actions)

    def join_deadline_reached(self, now_ms: int, actions: list[Action]) -> None:
        if not self.timers.extend(now_ms):
            self._complete(now_ms, actions)

    def _prepare(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        actions.append(RebalanceStarted(reason=reason))
        if self.state is GroupState.COMPLETING:
            self._refuse_syncs(GroupError.REBALANCE_IN_PROGRESS, actions)
            for member in self.roster:
                member.assignment = b""  # It is not the last generation's any more: that one never had any.
        timeout_ms = self.roster.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            self.timers.start_first(now_ms=now_ms, timeout_ms=timeout_ms, initial_delay_ms=self.initial_delay_ms)
        else:
            self.timers.start_joining(now_ms=now_ms, timeout_ms=timeout_ms)
        self._is_storing = False
        self._enter(GroupState.PREPARING, now_ms)

    def _complete_if_all_joined(self, now_ms: int, actions: list[Action]) -> None:
        if self.timers.is_first and self.roster.members:
            return  # The first rebalance waits its delay out: its company is still on the way.
        if self.roster.is_complete:
            self._complete(now_ms, actions)

    # -- a new generation

    def _complete(self, now_ms: int, actions: list[Action]) -> None:
        for member in self.roster:
            if member.join_ticket is None and member.instance_id is None:
                self.remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        if self.roster.members and not self.roster.elect_leader():
            # Only static members that did not come back: wait on until one does or their sessions end.
            self.timers.start_joining(now_ms=now_ms, timeout_ms=self.roster.rebalance_timeout_ms)
            return
        self.generation += 1
        if self.roster.members:
            self._announce(now_ms, actions)
        else:
            self._become_empty(now_ms, actions)

    def _announce(self, now_ms: int, actions: list[Action]) -> None:
        self.protocol_name = self.roster.select_protocol()
        self.timers.start_syncing(now_ms=now_ms, timeout_ms=self.roster.rebalance_timeout_ms)
        self._enter(GroupState.COMPLETING, now_ms)
        actions.append(GenerationStarted(generation=self.generation, member_count=len(self.roster)))
        for member in self.roster:
            member.is_new = False
            member.has_synced = False
            member.renew(now_ms)
            if member.join_ticket is not None:
                actions.append(AnswerJoin(ticket=member.join_ticket, reply=self.join_reply(member)))
                member.join_ticket = None

    def _become_empty(self, now_ms: int, actions: list[Action]) -> None:
        self.protocol_name = None
        self.timers.stop()
        self._enter(GroupState.EMPTY, now_ms)
        actions.append(GenerationStarted(generation=self.generation, member_count=0))
        actions.append(StoreGroup(snapshot=self.snapshot()))

    def join_reply(self, member: Member) -> JoinReply:
        is_leader = member.member_id == self.roster.leader_id
        return JoinReply(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.roster.leader_id or "",
            members=tuple(each.joined(self.protocol_name) for each in self.roster) if is_leader else (),
        )

    # -- handing out the assignment

    def assign(self, assignments: Mapping[str, bytes], actions: list[Action]) -> None:
        """The leader has spoken; syncs are answered when that is durable. A repetition changes nothing."""
        if self._is_storing:
            return
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
        self._is_storing = True
        actions.append(StoreGroup(snapshot=self.snapshot()))

    def stored(self, generation: int, now_ms: int, actions: list[Action]) -> None:
        if not self._is_storing or generation != self.generation:
            return
        self._is_storing = False
        self._enter(GroupState.STABLE, now_ms)
        for member in self.roster:
            if member.sync_ticket is not None:
                member.renew(now_ms)
                actions.append(AnswerSync(ticket=member.sync_ticket, reply=self.sync_reply(member)))
                member.sync_ticket = None

    def store_failed(self, generation: int, now_ms: int, actions: list[Action]) -> None:
        if not self._is_storing or generation != self.generation:
            return
        for member in self.roster:
            member.assignment = b""
        self._refuse_syncs(GroupError.COORDINATOR_NOT_AVAILABLE, actions)
        self.rebalance("the assignment could not be stored", now_ms, actions)

    def sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _refuse_syncs(self, error: GroupError, actions: list[Action]) -> None:
        for member in self.roster:
            refuse_sync(member, error, actions)

    # -- members that are checked, and members that go

    def check_member(self, member_id: str, instance_id: str | None) -> GroupError:
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        return self.roster.check(member_id, instance_id)

    def remove(self, member: Member, error: GroupError, actions: list[Action]) -> None:
        """Drop a member; `error` is what its parked requests are told."""
        refuse_join(member, error, actions)
        refuse_sync(member, error, actions)
        self.roster.remove(member)

    def remove_idle(self, actions: list[Action]) -> bool:
        """Members that joined the generation and never fetched their share keep partitions from the others."""
        self.timers.sync_deadline_ms = None
        idle = [each for each in self.roster if not each.has_synced]
        for member in idle:
            self.remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        return bool(idle)

    def dissolve(self, actions: list[Action]) -> None:
        """The members are somebody else's now; those that wait are told to join again."""
        for member in self.roster:
            self.remove(member, GroupError.REBALANCE_IN_PROGRESS, actions)
        self.timers.stop()
        self._is_storing = False
        self.state = GroupState.DEAD

    # -- keeping

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.roster.leader_id,
            members=tuple(each.snapshot(self.protocol_name) for each in self.roster),
            since_ms=self.since_ms,
        )

    @classmethod
    def restore(cls, snapshot: GroupSnapshot, *, initial_delay_ms: int, now_ms: int) -> "RebalanceCycle":
        cycle = cls(
            initial_delay_ms=initial_delay_ms,
            generation=snapshot.generation,
            protocol_type=snapshot.protocol_type,
            since_ms=snapshot.since_ms,
        )
        if snapshot.members and snapshot.protocol_name is not None:
            cycle.state = GroupState.STABLE
            cycle.protocol_name = snapshot.protocol_name
            for each in snapshot.members:
                cycle.roster.add(Member.restore(each, protocol_name=snapshot.protocol_name, now_ms=now_ms))
            cycle.roster.leader_id = snapshot.leader_id
        return cycle

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.since_ms = now_ms

    def check_invariants(self) -> None:
        members = self.roster.members
        is_idle = self.state in (GroupState.EMPTY, GroupState.DEAD)
        assert not (is_idle and members), "an empty group has members"
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert self.roster.leader_id in members, "the leader is not a member"
            assert self.protocol_name in self.roster.candidates(), "somebody does not speak the chosen protocol"
            assert all(each.join_ticket is None for each in members.values()), "a join is left parked"
        if self.state is not GroupState.COMPLETING:
            assert all(each.sync_ticket is None for each in members.values()), "a sync is left parked"
        is_preparing = self.state is GroupState.PREPARING
        assert (self.timers.join_deadline_ms is not None) == is_preparing, "joins are collected without a deadline"
        self.roster.check_invariants()


def refuse_join(member: Member, error: GroupError, actions: list[Action]) -> None:
    """Answer the join this member has parked, if it has one."""
    if member.join_ticket is not None:
        reply = JoinReply(error=error, member_id=member.member_id)
        actions.append(AnswerJoin(ticket=member.join_ticket, reply=reply))
        member.join_ticket = None


def refuse_sync(member: Member, error: GroupError, actions: list[Action]) -> None:
    """Answer the sync this member has parked, if it has one."""
    if member.sync_ticket is not None:
        actions.append(AnswerSync(ticket=member.sync_ticket, reply=SyncReply(error=error)))
        member.sync_ticket = None
