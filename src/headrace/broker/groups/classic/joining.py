"""How members join a classic group: the new, the returning, and the static ones that come back under another id.

A member with an `instance_id` is static (KIP-345): it returns under a new member id without a rebalance, and the one
it replaces is fenced. A new dynamic member of a recent client is first told its id (KIP-394).
"""

from dataclasses import dataclass

import msgspec

from headrace.broker.groups.classic.cycle import GroupState, RebalanceCycle, refuse_join, refuse_sync
from headrace.broker.groups.classic.events import Action, AnswerJoin, Join, JoinReply, Protocol, StoreGroup
from headrace.broker.groups.classic.member import Member
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.outcome import GroupError

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A first join may stay parked this long: a client that died while joining must not hold the group for ever."""

EXPECTED_MAX = 10_000
"""Member ids given out in one group whose owners have not come back: each is remembered for a session."""


@dataclass(slots=True)
class Joining:
    _cycle: RebalanceCycle
    _settings: ClassicSettings

    def join(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        error = self._refuse_join(event)
        if error is not GroupError.NONE:
            actions.append(_join_refused(event, error))
        elif event.member_id == "":
            self._join_unknown(event, now_ms, actions)
        elif self._cycle.roster.is_expected(event.member_id):
            self._add(event, event.member_id, now_ms, actions)
        else:
            self._rejoin(event, now_ms, actions)

    def _refuse_join(self, event: Join) -> GroupError:
        settings, roster = self._settings, self._cycle.roster
        if self._cycle.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if not settings.session_timeout_ms_min <= event.session_timeout_ms <= settings.session_timeout_ms_max:
            return GroupError.INVALID_SESSION_TIMEOUT
        if not self._supports(event.protocol_type, event.protocols):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if event.member_id in roster.members or roster.find_static(event.instance_id) is not None:
            return GroupError.NONE
        # As in Kafka, whoever was told an id takes no place before it comes back with it: it may never do so.
        is_expected_or_may_be = roster.is_expected(event.member_id) or roster.expected_count < EXPECTED_MAX
        if len(roster.members) >= settings.members_max or not is_expected_or_may_be:
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        if not self._cycle.roster.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self._cycle.protocol_type and self._cycle.roster.has_common(protocols)

    def _join_unknown(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        former = self._cycle.roster.find_static(event.instance_id)
        if former is not None:
            self._replace_static(former, event, now_ms, actions)
        elif event.instance_id is None and event.must_know_member_id:
            self._cycle.roster.expect(event.spare_member_id, now_ms + event.session_timeout_ms)
            actions.append(_join_refused(event, GroupError.MEMBER_ID_REQUIRED, member_id=event.spare_member_id))
        else:
            self._add(event, event.spare_member_id, now_ms, actions)

    def _add(self, event: Join, member_id: str, now_ms: int, actions: list[Action]) -> None:
        member = Member(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.patience_ms,
            protocols=event.protocols,
            join_ticket=event.ticket,
            deadline_ms=now_ms + NEW_MEMBER_TIMEOUT_MS,
            is_new=True,
        )
        if not self._cycle.roster.members:
            self._cycle.protocol_type = event.protocol_type
        self._cycle.roster.add(member)
        self._cycle.timers.note_company()
        self._cycle.rebalance(f"member {member_id} joined", now_ms, actions)

    def _rejoin(self, event: Join, now_ms: int, actions: list[Action]) -> None:
        error = self._cycle.check_member(event.member_id, event.instance_id)
        if error is not GroupError.NONE:
            actions.append(_join_refused(event, error))
            return
        member = self._cycle.roster.members[event.member_id]
        is_unchanged = member.protocols == event.protocols
        is_retry = self._cycle.state is GroupState.COMPLETING and is_unchanged
        is_idle_follower = (
            self._cycle.state is GroupState.STABLE and is_unchanged and event.member_id != self._cycle.roster.leader_id
        )
        if is_retry or is_idle_follower:
            member.renew(now_ms)
            actions.append(AnswerJoin(ticket=event.ticket, reply=self._cycle.join_reply(member)))
            return
        self._update(member, event, actions)
        member.renew(now_ms)
        self._cycle.rebalance(f"member {event.member_id} joined again", now_ms, actions)

    def _update(self, member: Member, event: Join, actions: list[Action]) -> None:
        # The client gave up on a connection where a join is parked; whoever still listens there must retry.
        refuse_join(member, GroupError.REBALANCE_IN_PROGRESS, actions)
        member.join_ticket = event.ticket
        member.protocols = event.protocols
        member.client_id = event.client_id
        member.client_host = event.client_host
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.patience_ms

    def _replace_static(self, member: Member, event: Join, now_ms: int, actions: list[Action]) -> None:
        """A static member is back with a new member id: it inherits, and its former self is fenced."""
        led_by = self._cycle.roster.leader_id
        refuse_join(member, GroupError.FENCED_INSTANCE_ID, actions)
        refuse_sync(member, GroupError.FENCED_INSTANCE_ID, actions)
        self._cycle.roster.rename(member, event.spare_member_id)
        self._update(member, event, actions)
        member.renew(now_ms)
        if (
            self._cycle.state is not GroupState.STABLE
            or self._cycle.roster.select_protocol() != self._cycle.protocol_name
        ):
            self._cycle.rebalance(f"static member {event.instance_id} joined again", now_ms, actions)
            return
        member.join_ticket = None
        reply = self._cycle.join_reply(member)
        if member.member_id == self._cycle.roster.leader_id:
            if event.can_skip_assignment:
                reply = msgspec.structs.replace(reply, skip_assignment=True)
            else:
                # An older client that hears it leads would assign anew; naming its former self keeps it quiet.
                reply = msgspec.structs.replace(reply, leader_id=led_by or "", members=())
        actions.append(StoreGroup(snapshot=self._cycle.snapshot()))
        actions.append(AnswerJoin(ticket=event.ticket, reply=reply))


def _join_refused(event: Join, error: GroupError, *, member_id: str | None = None) -> AnswerJoin:
    told = event.member_id if member_id is None else member_id
    return AnswerJoin(ticket=event.ticket, reply=JoinReply(error=error, member_id=told))
