"""The classic consumer group as a machine: requests and time in, answers and things to store out.

States:

- `EMPTY`: no members; committed offsets may remain. The first to join starts a rebalance that waits
  `initial_delay_ms` for company, and longer while company keeps arriving.
- `PREPARING`: collecting joins. Ends when every member has joined, or at the rebalance deadline; dynamic members
  that did not come are dropped, static ones are kept until their session ends.
- `COMPLETING`: a new generation has been announced; followers wait in sync for the leader's assignment.
- `STABLE`: everybody has an assignment and heartbeats.
- `DEAD`: deleted; every request is told to look for its coordinator again.

Rules: assignments and metadata are opaque bytes, so eager and cooperative rebalancing are the same to us. A member
with an `instance_id` is static (KIP-345): it returns under a new member id without a rebalance, and the one it
replaces is fenced. An assignment is handed out only once the group is durable.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

import msgspec

from headrace.broker.groups.classic.events import (
    Action,
    AnswerHeartbeat,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Departure,
    DepartureReply,
    Event,
    GenerationStarted,
    GroupSnapshot,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Protocol,
    RebalanceStarted,
    Stored,
    StoreFailed,
    StoreGroup,
    Sync,
    SyncReply,
    Tick,
)
from headrace.broker.groups.classic.member import Member
from headrace.broker.groups.classic.roster import Roster
from headrace.broker.groups.outcome import GroupError

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A first join may stay parked this long: a client that died while joining must not hold the group for ever."""


class GroupState(Enum):
    """Values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicSettings(msgspec.Struct, frozen=True, kw_only=True):
    initial_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 10_000


@dataclass(slots=True)
class ClassicGroup:
    settings: ClassicSettings = field(default_factory=ClassicSettings)
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    since_ms: int = 0
    """When the present state began; offsets of an empty group age from here."""
    _roster: Roster = field(default_factory=Roster)
    _join_deadline_ms: int | None = None
    _initial_remaining_ms: int | None = None
    """How much longer the first rebalance of an empty group may be extended; None in any other rebalance."""
    _has_company: bool = False
    """Somebody joined since the initial delay was last extended."""
    _sync_deadline_ms: int | None = None
    _is_storing: bool = False
    _wake_ms: int | None = None
    """A lower bound of every deadline, so that a heartbeat need not look at all members."""

    @property
    def members(self) -> dict[str, Member]:
        return self._roster.members

    @property
    def leader_id(self) -> str | None:
        return self._roster.leader_id

    # -- driving

    def step(self, event: Event, *, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Join():
                self._join(event, now_ms, actions)
            case Sync():
                self._sync(event, now_ms, actions)
            case Heartbeat():
                actions.append(AnswerHeartbeat(ticket=event.ticket, error=self._heartbeat(event, now_ms)))
                return actions  # A heartbeat only moves a deadline further away.
            case Leave():
                self._leave(event, now_ms, actions)
            case Tick():
                self._tick(now_ms, actions)
            case Stored():
                self._stored(event.generation, now_ms, actions)
            case StoreFailed():
                self._store_failed(event.generation, now_ms, actions)
            case _:
                assert_never(event)
        self._wake_ms = min(self._deadlines(), default=None)
        return actions

    @property
    def next_deadline_ms(self) -> int | None:
        """Not later than the next moment at which `Tick` has something to do."""
        return self._wake_ms

    def _deadlines(self) -> Iterable[int]:
        if self._join_deadline_ms is not None:
            yield self._join_deadline_ms
        if self._sync_deadline_ms is not None:
            yield self._sync_deadline_ms
        yield from self._roster.deadlines()

    # -- join

    def _join(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        error = self._refuse_join(event)
        if error is not GroupError.NONE:
            actions.append(_join_refused(event.ticket, event.member_id, error))
        elif event.member_id == "":
            self._join_unknown(event, now_ms, actions)
        elif self._roster.is_expected(event.member_id):
            self._add(event, event.member_id, now_ms, actions)
        else:
            self._rejoin(event, now_ms, actions)

    def _refuse_join(self, event: Join) -> GroupError:
        settings = self.settings
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if not settings.session_timeout_ms_min <= event.session_timeout_ms <= settings.session_timeout_ms_max:
            return GroupError.INVALID_SESSION_TIMEOUT
        if not self._supports(event.protocol_type, event.protocols):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        is_known = event.member_id in self.members or self._roster.find_static(event.instance_id) is not None
        if not is_known and self._roster.head_count >= settings.members_max:
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self._roster.has_common(protocols)

    def _join_unknown(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        former = self._roster.find_static(event.instance_id)
        if former is not None:
            self._replace_static(former, event, now_ms, actions)
        elif event.instance_id is None and event.must_know_member_id:
            self._roster.expect(event.spare_member_id, now_ms + event.session_timeout_ms)
            actions.append(_join_refused(event.ticket, event.spare_member_id, GroupError.MEMBER_ID_REQUIRED))
        else:
            self._add(event, event.spare_member_id, now_ms, actions)

    def _add(self, event: Join, member_id: str, now_ms: int, actions: list[Action]) -> None:
        member = Member(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(event),
            protocols=event.protocols,
            join_ticket=event.ticket,
            deadline_ms=now_ms + NEW_MEMBER_TIMEOUT_MS,
            is_new=True,
        )
        if not self.members:
            self.protocol_type = event.protocol_type
        self._roster.add(member)
        self._has_company = self.state is GroupState.PREPARING
        self._rebalance(f"member {member_id} joined", now_ms, actions)

    def _rejoin(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        error = self._check_member(event.member_id, event.instance_id)
        if error is not GroupError.NONE:
            actions.append(_join_refused(event.ticket, event.member_id, error))
            return
        member = self.members[event.member_id]
        is_unchanged = member.protocols == event.protocols
        is_retry = self.state is GroupState.COMPLETING and is_unchanged
        is_idle_follower = self.state is GroupState.STABLE and is_unchanged and event.member_id != self.leader_id
        if is_retry or is_idle_follower:
            self._renew(member, now_ms)
            actions.append(AnswerJoin(ticket=event.ticket, reply=self._join_reply(member)))
            return
        self._update(member, event, actions)
        self._renew(member, now_ms)
        self._rebalance(f"member {event.member_id} joined again", now_ms, actions)

    def _update(self, member: Member, event: Join, actions: list[Action]) -> None:
        if member.join_ticket is not None:
            # The client gave up on that connection and asked again; whoever still listens there must retry.
            actions.append(_join_refused(member.join_ticket, member.member_id, GroupError.REBALANCE_IN_PROGRESS))
        member.join_ticket = event.ticket
        member.protocols = event.protocols
        member.client_id = event.client_id
        member.client_host = event.client_host
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(event)

    def _replace_static(self, member: Member, event: Join, now_ms: int, actions: list[Action]) -> None:
        """A static member is back with a new member id: it inherits, and its former self is fenced."""
        led_by = self.leader_id
        self._dismiss(member, GroupError.FENCED_INSTANCE_ID, actions)
        self._roster.rename(member, event.spare_member_id)
        self._update(member, event, actions)
        self._renew(member, now_ms)
        if self.state is not GroupState.STABLE or self._roster.select_protocol() != self.protocol_name:
            self._rebalance(f"static member {event.instance_id} joined again", now_ms, actions)
            return
        member.join_ticket = None
        reply = self._join_reply(member)
        if member.member_id == self.leader_id:
            if event.can_skip_assignment:
                reply = msgspec.structs.replace(reply, skip_assignment=True)
            else:
                # An older client that hears it leads would assign anew; naming its former self keeps it quiet.
                reply = msgspec.structs.replace(reply, leader_id=led_by or "", members=())
        actions.append(StoreGroup(snapshot=self.snapshot()))
        actions.append(AnswerJoin(ticket=event.ticket, reply=reply))

    # -- rebalance

    def _rebalance(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        if self.state is not GroupState.PREPARING:
            self._prepare(reason, now_ms, actions)
        self._complete_if_all_joined(now_ms, actions)

    def _prepare(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        actions.append(RebalanceStarted(reason=reason))
        if self.state is GroupState.COMPLETING:
            self._answer_syncs(GroupError.REBALANCE_IN_PROGRESS, actions)
        timeout_ms = self._roster.rebalance_timeout_ms
        self._initial_remaining_ms = None
        if self.state is GroupState.EMPTY:
            delay_ms = min(self.settings.initial_delay_ms, timeout_ms)
            self._initial_remaining_ms = timeout_ms - delay_ms
            timeout_ms = delay_ms
        self._join_deadline_ms = now_ms + timeout_ms
        self._sync_deadline_ms = None
        self._is_storing = False
        self._enter(GroupState.PREPARING, now_ms)

    def _complete_if_all_joined(self, now_ms: int, actions: list[Action]) -> None:
        if self._initial_remaining_ms is not None and self.members:
            return  # The first rebalance waits its delay out: its company is still on the way.
        if self._roster.is_complete:
            self._complete(now_ms, actions)

    def _join_deadline_reached(self, now_ms: int, actions: list[Action]) -> None:
        if self._initial_remaining_ms and self._has_company:
            delay_ms = min(self.settings.initial_delay_ms, self._initial_remaining_ms)
            self._initial_remaining_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._has_company = False
            return
        self._complete(now_ms, actions)

    def _complete(self, now_ms: int, actions: list[Action]) -> None:
        for member in self._roster:
            if member.join_ticket is None and member.instance_id is None:
                self._remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        if self.members and not self._roster.elect_leader():
            # Only static members that did not come back: wait on until one does or their sessions end.
            self._initial_remaining_ms = None
            self._join_deadline_ms = now_ms + self._roster.rebalance_timeout_ms
            return
        self._join_deadline_ms = None
        self._initial_remaining_ms = None
        self._has_company = False
        self.generation += 1
        if self.members:
            self._announce(now_ms, actions)
        else:
            self._become_empty(now_ms, actions)

    def _announce(self, now_ms: int, actions: list[Action]) -> None:
        self.protocol_name = self._roster.select_protocol()
        self._enter(GroupState.COMPLETING, now_ms)
        self._sync_deadline_ms = now_ms + self._roster.rebalance_timeout_ms
        actions.append(GenerationStarted(generation=self.generation, member_count=len(self.members)))
        for member in self.members.values():
            member.is_new = False
            member.has_synced = False
            self._renew(member, now_ms)
            if member.join_ticket is not None:
                actions.append(AnswerJoin(ticket=member.join_ticket, reply=self._join_reply(member)))
                member.join_ticket = None

    def _become_empty(self, now_ms: int, actions: list[Action]) -> None:
        self.protocol_name = None
        self._enter(GroupState.EMPTY, now_ms)
        actions.append(GenerationStarted(generation=self.generation, member_count=0))
        actions.append(StoreGroup(snapshot=self.snapshot()))

    def _join_reply(self, member: Member) -> JoinReply:
        is_leader = member.member_id == self.leader_id
        return JoinReply(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id or "",
            members=tuple(each.joined(self.protocol_name) for each in self.members.values()) if is_leader else (),
        )

    # -- sync

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
        self._renew(member, now_ms)
        if self.state is GroupState.STABLE:
            actions.append(AnswerSync(ticket=event.ticket, reply=self._sync_reply(member)))
            return
        if member.sync_ticket is not None:
            reply = SyncReply(error=GroupError.REBALANCE_IN_PROGRESS)
            actions.append(AnswerSync(ticket=member.sync_ticket, reply=reply))
        member.sync_ticket = event.ticket
        if event.member_id == self.leader_id and not self._is_storing:
            for each in self.members.values():
                each.assignment = event.assignments.get(each.member_id, b"")
            self._is_storing = True
            actions.append(StoreGroup(snapshot=self.snapshot()))

    def _is_our_protocol(self, event: Sync) -> bool:
        return event.protocol_type in (None, self.protocol_type) and event.protocol_name in (
            None,
            self.protocol_name,
        )

    def _stored(self, generation: int, now_ms: int, actions: list[Action]) -> None:
        if not self._is_storing or generation != self.generation:
            return
        self._is_storing = False
        self._enter(GroupState.STABLE, now_ms)
        for member in self.members.values():
            if member.sync_ticket is not None:
                self._renew(member, now_ms)
                actions.append(AnswerSync(ticket=member.sync_ticket, reply=self._sync_reply(member)))
                member.sync_ticket = None

    def _store_failed(self, generation: int, now_ms: int, actions: list[Action]) -> None:
        if not self._is_storing or generation != self.generation:
            return
        for member in self.members.values():
            member.assignment = b""
        self._answer_syncs(GroupError.COORDINATOR_NOT_AVAILABLE, actions)
        self._rebalance("the assignment could not be stored", now_ms, actions)

    def _answer_syncs(self, error: GroupError, actions: list[Action]) -> None:
        for member in self.members.values():
            if member.sync_ticket is not None:
                actions.append(AnswerSync(ticket=member.sync_ticket, reply=SyncReply(error=error)))
                member.sync_ticket = None

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    # -- heartbeat, leave, time

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> GroupError:
        error = self._check_generation(event.member_id, event.instance_id, event.generation)
        if error is not GroupError.NONE:
            return error
        self._renew(self.members[event.member_id], now_ms)
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
            self._after_departure("members left", now_ms, actions)

    def _depart(self, departure: Departure, actions: list[Action]) -> GroupError:
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if departure.instance_id is None and self._roster.is_expected(departure.member_id):
            self._roster.forget_expected(departure.member_id)
            return GroupError.NONE
        member_id = departure.member_id
        static = self._roster.find_static(departure.instance_id)
        if static is not None and member_id == "":
            member_id = static.member_id  # An operator removes a static member by the only name it knows.
        error = self._check_member(member_id, departure.instance_id)
        if error is GroupError.NONE:
            self._remove(self.members[member_id], GroupError.UNKNOWN_MEMBER_ID, actions)
        return error

    def _after_departure(self, reason: str, now_ms: int, actions: list[Action]) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(reason, now_ms, actions)
        elif self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now_ms, actions)

    def _tick(self, now_ms: int, actions: list[Action]) -> None:
        is_smaller = self._roster.drop_late(now_ms)
        is_smaller |= self._expire_sessions(now_ms, actions)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            is_smaller |= self._expire_syncs(actions)
        if is_smaller:
            self._after_departure("members fell silent", now_ms, actions)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_deadline_reached(now_ms, actions)

    def _expire_sessions(self, now_ms: int, actions: list[Action]) -> bool:
        before = len(self.members)
        for member in self._roster:
            if member.deadline_ms > now_ms:
                continue
            if member.is_waiting and not member.is_new:
                self._renew(member, now_ms)  # It waits for us; its silence is our doing.
            else:
                self._remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        return len(self.members) < before

    def _expire_syncs(self, actions: list[Action]) -> bool:
        """Members that joined the generation and never fetched their share keep partitions from the others."""
        self._sync_deadline_ms = None
        idle = [each for each in self.members.values() if not each.has_synced]
        for member in idle:
            self._remove(member, GroupError.UNKNOWN_MEMBER_ID, actions)
        return bool(idle)

    def _remove(self, member: Member, error: GroupError, actions: list[Action]) -> None:
        self._dismiss(member, error, actions)
        self._roster.remove(member)

    def _dismiss(self, member: Member, error: GroupError, actions: list[Action]) -> None:
        if member.join_ticket is not None:
            actions.append(_join_refused(member.join_ticket, member.member_id, error))
            member.join_ticket = None
        if member.sync_ticket is not None:
            actions.append(AnswerSync(ticket=member.sync_ticket, reply=SyncReply(error=error)))
            member.sync_ticket = None

    # -- checks

    def _check_member(self, member_id: str, instance_id: str | None) -> GroupError:
        if self.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        return self._roster.check(member_id, instance_id)

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        error = self._check_member(member_id, instance_id)
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
        if self.state is GroupState.COMPLETING:
            # The assignment these offsets came from is history, and the next one is not known yet.
            return GroupError.REBALANCE_IN_PROGRESS
        self._renew(self.members[member_id], now_ms)
        return GroupError.NONE

    def retire(self) -> GroupError:
        """Delete the group; only an empty one lets go."""
        if self.state is GroupState.DEAD:
            return GroupError.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return GroupError.NON_EMPTY_GROUP
        self.state = GroupState.DEAD
        return GroupError.NONE

    # -- keeping

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            members=tuple(each.snapshot(self.protocol_name) for each in self.members.values()),
            since_ms=self.since_ms,
        )

    @classmethod
    def restore(cls, snapshot: GroupSnapshot, *, settings: ClassicSettings, now_ms: int) -> "ClassicGroup":
        """A coordinator takes over: members keep their assignment and get a full session to report."""
        group = cls(settings=settings, since_ms=snapshot.since_ms, generation=snapshot.generation)
        group.protocol_type = snapshot.protocol_type
        if snapshot.members and snapshot.protocol_name is not None:
            group.state = GroupState.STABLE
            group.protocol_name = snapshot.protocol_name
            for each in snapshot.members:
                group._roster.add(Member.restore(each, protocol_name=snapshot.protocol_name, now_ms=now_ms))
            group._roster.leader_id = snapshot.leader_id
        group._wake_ms = min(group._deadlines(), default=None)
        return group

    def _renew(self, member: Member, now_ms: int) -> None:
        if not member.is_new:
            member.deadline_ms = now_ms + member.session_timeout_ms

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.since_ms = now_ms

    def check_invariants(self) -> None:
        is_idle = self.state in (GroupState.EMPTY, GroupState.DEAD)
        assert not (is_idle and self.members), "an empty group has members"
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert self.leader_id in self.members, "the leader is not a member"
            assert self.protocol_name in self._roster.candidates(), "somebody does not speak the chosen protocol"
            assert all(each.join_ticket is None for each in self.members.values()), "a join is left parked"
        if self.state is not GroupState.COMPLETING:
            assert all(each.sync_ticket is None for each in self.members.values()), "a sync is left parked"
        assert (self._join_deadline_ms is not None) == (self.state is GroupState.PREPARING)
        self._roster.check_invariants()


def _join_refused(ticket: int, member_id: str, error: GroupError) -> AnswerJoin:
    return AnswerJoin(ticket=ticket, reply=JoinReply(error=error, member_id=member_id))


def _rebalance_timeout_ms(event: Join) -> int:
    return event.rebalance_timeout_ms if event.rebalance_timeout_ms >= 0 else event.session_timeout_ms
