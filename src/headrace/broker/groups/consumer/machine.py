"""The KIP-848 consumer group as a machine: heartbeats, topic changes and time in, answers out.

States shown to the outside: `EMPTY` (no members), `ASSIGNING` (target behind group), `RECONCILING` (a member is
behind the target, or waits for partitions), `STABLE`, `DEAD` (deleted).

What moves the group, and the rules it keeps, are in `membership`. Some of its members may still speak the classic
protocol (`classic_members`); when only such are left, the group asks to become a classic one.
"""

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer.assignors import ASSIGNORS
from headrace.broker.groups.consumer.classic_members import ClassicMembers
from headrace.broker.groups.consumer.events import (
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Action,
    Answer,
    Event,
    GroupSnapshot,
    Heartbeat,
    HeartbeatReply,
    OnlyClassicLeft,
    StoreGroup,
    Tick,
    TopicsChanged,
    TopicShape,
)
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.membership import Membership, Refused
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.outcome import GroupError


class ConsumerGroupState(Enum):
    """Values are the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    def __init__(self, settings: ConsumerSettings | None = None, *, membership: Membership | None = None) -> None:
        self._membership = membership or Membership(settings or ConsumerSettings())
        self._classic_members = ClassicMembers(self._membership)
        self._is_dead = False
        self._wake_ms = min(self._membership.deadlines(), default=None)

    @property
    def epoch(self) -> int:
        return self._membership.epoch

    @property
    def target_epoch(self) -> int:
        return self._membership.target_epoch

    @property
    def assignor(self) -> str:
        return self._membership.assignor

    @property
    def members(self) -> dict[str, Member]:
        return self._membership.members

    @property
    def since_ms(self) -> int:
        """When the group last became empty; its offsets age from here."""
        return self._membership.since_ms

    @property
    def state(self) -> ConsumerGroupState:
        if self._is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        is_settled = all(each.is_complete and each.epoch == self.target_epoch for each in self.members.values())
        return ConsumerGroupState.STABLE if is_settled else ConsumerGroupState.RECONCILING

    def use(self, settings: ConsumerSettings) -> None:
        """Members hear of a new pace with their next heartbeat, and their sessions are measured by it from there on."""
        self._membership.settings = settings
        # A session may be shorter now: the next step looks at every deadline again.
        self._wake_ms = None

    def topics_of(self, member: Member) -> set[str]:
        """The existing topics this member reads, by name or by pattern."""
        return self._membership.topics.topics_of(member)

    # -- driving

    def step(self, event: Event, *, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Heartbeat():
                self._heartbeat(event, now_ms, actions)
                if len(actions) == 1 and self._wake_ms is not None:
                    return actions  # Nothing but an answer: a deadline moved further away, if any did.
            case classic.Join() | classic.Sync() | classic.Heartbeat() | classic.Leave():
                has_changed = self._classic_members.handle(event, now_ms, actions)
                if has_changed:
                    self._keep(actions)
            case TopicsChanged():
                self._membership.topics_changed(event.topics, actions)
            case Tick():
                self._tick(now_ms, actions)
            case _:
                assert_never(event)
        self._wake_ms = min(self._membership.deadlines(), default=None)
        return actions

    @property
    def next_deadline_ms(self) -> int | None:
        """Not later than the next moment at which `Tick` has something to do.

        A lower bound of every deadline, so that a heartbeat need not look at all members.
        """
        return self._wake_ms

    def _keep(self, actions: list[Action]) -> None:
        """Members have changed: store the group, or let go of it."""
        if self._membership.is_all_classic:
            actions.append(OnlyClassicLeft())
        else:
            actions.append(StoreGroup(snapshot=self.snapshot()))

    # -- heartbeat

    def _heartbeat(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> None:
        try:
            self._check_request(event)
            if event.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                reply = self._leave(event, now_ms, actions)
            else:
                reply = self._attend(event, now_ms, actions)
        except Refused as refusal:
            reply = HeartbeatReply(
                error=refusal.error,
                message=str(refusal),
                member_id=event.member_id,
            )
        actions.append(Answer(ticket=event.ticket, reply=reply))

    def _attend(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> HeartbeatReply:
        if self._is_dead:
            raise Refused(GroupError.GROUP_ID_NOT_FOUND, "the group was deleted")
        attendance = self._membership.attend(event, now_ms, actions)
        if attendance.has_moved:
            self._keep(actions)
        member = attendance.member
        is_joining = event.member_epoch == 0
        is_full = event.owned is not None and event.rebalance_timeout_ms >= 0
        return HeartbeatReply(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._membership.settings.heartbeat_interval_ms,
            assignment=member.assigned if is_joining or is_full or attendance.has_new_share else None,
        )

    def _check_request(self, event: Heartbeat) -> None:
        """What can be told without looking at the group, of members that leave too."""
        if event.member_epoch == 0:
            self._check_joining(event)
        if event.server_assignor is not None and event.server_assignor not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise Refused(GroupError.UNSUPPORTED_ASSIGNOR, f"assignors are: {known}")

    def _check_joining(self, event: Heartbeat) -> None:
        if event.rebalance_timeout_ms < 0:
            raise Refused(GroupError.INVALID_REQUEST, "joining needs a rebalance timeout")
        if event.owned is None or event.owned:
            raise Refused(GroupError.INVALID_REQUEST, "whoever joins owns nothing, and says so")
        # Of no topics at all is a subscription, too: such a member belongs to the group and gets nothing.
        if event.topic_names is None and event.topic_regex is None:
            raise Refused(GroupError.INVALID_REQUEST, "joining needs topic names or a pattern, be it an empty one")

    def _leave(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> HeartbeatReply:
        member = self._membership.find_leaving(event.member_id, event.instance_id)
        if event.member_epoch == LEAVING_FOR_A_WHILE and member.instance_id is not None:
            member.has_left = True
            member.due_ms = None
            actions.append(StoreGroup(snapshot=self.snapshot()))
        else:
            self._remove([member], f"member {member.member_id} left", now_ms, actions)
        return HeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch)

    # -- time

    def _tick(self, now_ms: int, actions: list[Action]) -> None:
        gone = [
            member
            for member in self.members.values()
            if member.deadline_ms <= now_ms or (member.due_ms is not None and member.due_ms <= now_ms)
        ]
        if gone:
            names = ", ".join(each.member_id for each in gone)
            self._remove(gone, f"out of time: {names}", now_ms, actions)

    def _remove(self, gone: list[Member], reason: str, now_ms: int, actions: list[Action]) -> None:
        for member in gone:
            self._membership.remove(member, now_ms)
        if not self._membership.is_all_classic:
            # Where only classic members stay, their generation must stay theirs: it is how they will be known.
            self._membership.raise_epoch(reason, actions)
        self._keep(actions)

    # -- checks

    def check_commit(
        self, *, member_id: str, member_epoch: int, in_transaction: bool = False, knows_epochs: bool = True
    ) -> GroupError:
        """May this commit offsets? Whoever says no epoch uses no group management, and may while there are no members."""
        is_anonymous = member_id == "" and in_transaction
        if member_epoch < 0 and not self._is_dead and (is_anonymous or not self.members):
            return GroupError.NONE
        member = self.members.get(member_id)
        if member is not None and member.classic is None and not in_transaction and not knows_epochs:
            return GroupError.UNSUPPORTED_VERSION
        return self.check_reader(member_id=member_id, member_epoch=member_epoch)

    def check_reader(self, *, member_id: str, member_epoch: int) -> GroupError:
        """May this member ask for the group's offsets?"""
        if self._is_dead:
            return GroupError.GROUP_ID_NOT_FOUND
        member = self.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return GroupError.NONE
        return GroupError.STALE_MEMBER_EPOCH if member.classic is None else GroupError.ILLEGAL_GENERATION

    # -- keeping

    def retire(self) -> GroupError:
        """Delete the group; only an empty one lets go."""
        if self._is_dead:
            return GroupError.GROUP_ID_NOT_FOUND
        if self.members:
            return GroupError.NON_EMPTY_GROUP
        self._is_dead = True
        return GroupError.NONE

    def snapshot(self) -> GroupSnapshot:
        return self._membership.snapshot()

    @classmethod
    def restore(
        cls, snapshot: GroupSnapshot, *, settings: ConsumerSettings, topics: Mapping[str, TopicShape], now_ms: int
    ) -> "ConsumerGroup":
        """A coordinator takes over: members keep what they hold and get a full session to report."""
        return cls(membership=Membership.restore(snapshot, settings=settings, topics=topics, now_ms=now_ms))

    def check_invariants(self) -> None:
        self._membership.check_invariants()
