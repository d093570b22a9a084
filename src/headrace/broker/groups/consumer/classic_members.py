"""Members of a KIP-848 group that still speak the classic protocol, while the group is being moved over.

A JoinGroup is a heartbeat that says everything: what the member wants and what it still owns are in its subscription.
It is answered at once, for nobody waits for anybody here, and nobody leads: the coordinator assigns. SyncGroup
collects what the member has been given. The generation of such a member is its member epoch, and REBALANCE_IN_PROGRESS
in answer to a heartbeat makes it join again whenever that would get it further.

What such a member is told it must do, within its rebalance timeout: join again, and after each join, sync.
"""

from typing import assert_never

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer.events import Action, ClassicRequest, ClassicTerms, Heartbeat
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.membership import Membership, Refused
from headrace.broker.groups.embedded import CONSUMER_PROTOCOL_TYPE, Subscription, read_subscription, write_assignment
from headrace.broker.groups.outcome import GroupError
from headrace.errors import MalformedRequest


class ClassicMembers:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def handle(self, event: ClassicRequest, now_ms: int, actions: list[Action]) -> bool:
        """Answer the request; true when the group has changed and must be stored."""
        match event:
            case classic.Join():
                return self._answer_join(event, now_ms, actions)
            case classic.Sync():
                actions.append(classic.AnswerSync(ticket=event.ticket, reply=self._sync(event, now_ms)))
                return False
            case classic.Heartbeat():
                actions.append(classic.AnswerHeartbeat(ticket=event.ticket, error=self._heartbeat(event, now_ms)))
                return False
            case classic.Leave():
                return self._leave(event, now_ms, actions)
            case _:
                assert_never(event)

    # -- join

    def _answer_join(self, event: classic.Join, now_ms: int, actions: list[Action]) -> bool:
        has_joined = False
        try:
            reply = self._join(event, now_ms, actions)
            has_joined = True
        except Refused as refusal:
            needs_id = refusal.error is GroupError.MEMBER_ID_REQUIRED
            told = event.spare_member_id if needs_id else event.member_id
            reply = classic.JoinReply(error=refusal.error, member_id=told)
        actions.append(classic.AnswerJoin(ticket=event.ticket, reply=reply))
        return has_joined

    def _join(self, event: classic.Join, now_ms: int, actions: list[Action]) -> classic.JoinReply:
        subscription = self._check_join(event)
        terms = ClassicTerms(session_timeout_ms=event.session_timeout_ms, protocols=event.protocols)
        heartbeat = Heartbeat(
            member_id=event.member_id,
            member_epoch=0,
            instance_id=event.instance_id,
            rack_id=subscription.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=event.patience_ms,
            topic_names=subscription.topics,
            topic_regex="",
            owned=self._membership.topics.partitions(subscription.owned),
            spare_member_id=event.spare_member_id,
            classic=terms,
        )
        member = self._membership.attend(heartbeat, now_ms, actions).member
        member.due_ms = now_ms + member.rebalance_timeout_ms
        return classic.JoinReply(
            member_id=member.member_id,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=terms.protocol.name,
        )

    def _check_join(self, event: classic.Join) -> Subscription:
        settings = self._membership.settings
        shortest_ms, longest_ms = settings.classic_session_timeout_ms_min, settings.classic_session_timeout_ms_max
        if not shortest_ms <= event.session_timeout_ms <= longest_ms:
            raise Refused(GroupError.INVALID_SESSION_TIMEOUT, f"a session has {shortest_ms} to {longest_ms} ms")
        if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not self._has_common(event.protocols):
            raise Refused(GroupError.INCONSISTENT_GROUP_PROTOCOL, "not a protocol of this group")
        if event.member_id and event.instance_id is not None:
            self._membership.find(event.member_id, event.instance_id)
        try:
            subscription, *_ = [read_subscription(each.metadata) for each in event.protocols]
        except MalformedRequest as error:
            raise Refused(GroupError.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        if not event.member_id and event.instance_id is None and event.must_know_member_id:
            raise Refused(GroupError.MEMBER_ID_REQUIRED, "a new member comes back with its id (KIP-394)")
        return subscription

    def _has_common(self, protocols: tuple[classic.Protocol, ...]) -> bool:
        """Is there one that all classic members speak? They will need it should the group become theirs again."""
        common = {each.name for each in protocols}
        for member in self._membership.members.values():
            if member.classic is not None:
                common &= {each.name for each in member.classic.protocols}
        return bool(common)

    # -- sync, heartbeat, leave

    def _sync(self, event: classic.Sync, now_ms: int) -> classic.SyncReply:
        try:
            member, terms = self._find(event.member_id, event.instance_id, event.generation)
        except Refused as refusal:
            return classic.SyncReply(error=refusal.error)
        is_ours = event.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
        if not is_ours or event.protocol_name not in (None, terms.protocol.name):
            return classic.SyncReply(error=GroupError.INCONSISTENT_GROUP_PROTOCOL)
        if member.epoch < self._membership.epoch and not member.revoking:
            self._expect_join(member, now_ms)
            return classic.SyncReply(error=GroupError.REBALANCE_IN_PROGRESS)
        member.due_ms = None
        self._membership.renew(member, now_ms)
        share = self._membership.topics.named(member.assigned)
        return classic.SyncReply(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=terms.protocol.name,
            assignment=write_assignment(share, read_subscription(terms.protocol.metadata).version),
        )

    def _heartbeat(self, event: classic.Heartbeat, now_ms: int) -> GroupError:
        try:
            member, _ = self._find(event.member_id, event.instance_id, event.generation)
        except Refused as refusal:
            return refusal.error
        self._membership.renew(member, now_ms)
        if not self._membership.can_move(member):
            return GroupError.NONE
        self._expect_join(member, now_ms)
        return GroupError.REBALANCE_IN_PROGRESS

    def _leave(self, event: classic.Leave, now_ms: int, actions: list[Action]) -> bool:
        replies = tuple(
            classic.DepartureReply(
                member_id=each.member_id, instance_id=each.instance_id, error=self._depart(each, now_ms)
            )
            for each in event.departures
        )
        actions.append(classic.AnswerLeave(ticket=event.ticket, replies=replies))
        has_changed = any(each.error is GroupError.NONE for each in replies)
        if has_changed:
            self._membership.raise_epoch("members left", actions)
        return has_changed

    def _depart(self, departure: classic.Departure, now_ms: int) -> GroupError:
        try:
            member = self._membership.find_leaving(departure.member_id, departure.instance_id)
        except Refused as refusal:
            return refusal.error
        if member.classic is None:
            return GroupError.UNKNOWN_MEMBER_ID
        self._membership.remove(member, now_ms)
        return GroupError.NONE

    def _find(self, member_id: str, instance_id: str | None, generation: int) -> tuple[Member, ClassicTerms]:
        member = self._membership.find(member_id, instance_id)
        if member.classic is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"member {member_id} does not speak the classic protocol")
        if generation != member.epoch:
            raise Refused(GroupError.ILLEGAL_GENERATION, f"generation {generation}, expected {member.epoch}")
        return member, member.classic

    def _expect_join(self, member: Member, now_ms: int) -> None:
        if member.due_ms is None:
            member.due_ms = now_ms + member.rebalance_timeout_ms
