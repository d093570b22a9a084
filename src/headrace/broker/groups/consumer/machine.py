"""The KIP-848 consumer group as a machine: heartbeats, topic changes and time in, answers out.

Three numbers move the group. The *group epoch* rises when members, subscriptions or topics change. The *target
epoch* follows when the assignor has said who should have what. Each *member epoch* follows when that member has let
go of everything it must give up; then it gets what is free, and the rest as the others let go.

States shown to the outside: `EMPTY` (no members), `ASSIGNING` (target behind group), `RECONCILING` (a member is
behind the target, or waits for partitions), `STABLE`, `DEAD` (deleted).

Rules: a partition has at most one holder, where holding ends only when the member says so, leaves, or its time is up.
A member that shows an epoch other than its own is fenced and has to join again with nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

import msgspec

from headrace.broker.groups.consumer.assignors import ASSIGNORS, Slot, Subscriber
from headrace.broker.groups.consumer.events import (
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Action,
    Answer,
    EpochStarted,
    Event,
    GroupSnapshot,
    Heartbeat,
    HeartbeatReply,
    StoreGroup,
    Tick,
    TopicsChanged,
    TopicShape,
)
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.pattern import InvalidPattern, NamePattern
from headrace.broker.groups.outcome import GroupError

DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))


class ConsumerGroupState(Enum):
    """Values are the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    members_max: int = 10_000


class _Refused(Exception):
    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class ConsumerGroup:
    settings: ConsumerSettings = field(default_factory=ConsumerSettings)
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    since_ms: int = 0
    """When the group last became empty; its offsets age from here."""
    is_dead: bool = False
    _topics: Mapping[str, TopicShape] = field(default_factory=dict)
    _patterns: dict[str, NamePattern] = field(default_factory=dict)
    _static: dict[str, str] = field(default_factory=dict)
    _owners: dict[Slot, str] = field(default_factory=dict)
    _subscribed: dict[bytes, int] = field(default_factory=dict)
    """Topics somebody wants, with their partition counts, as the last target saw them."""
    _wake_ms: int | None = None
    """A lower bound of every deadline, so that a heartbeat need not look at all members."""

    # -- driving

    def step(self, event: Event, *, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Heartbeat():
                self._heartbeat(event, now_ms, actions)
                if len(actions) == 1 and self._wake_ms is not None:
                    return actions  # Nothing but an answer: a deadline moved further away, if any did.
            case TopicsChanged():
                self._topics_changed(event.topics, actions)
            case Tick():
                self._tick(now_ms, actions)
            case _:
                assert_never(event)
        self._wake_ms = min(self._deadlines(), default=None)
        return actions

    @property
    def next_deadline_ms(self) -> int | None:
        """Not later than the next moment at which `Tick` has something to do."""
        return self._wake_ms

    def _deadlines(self) -> Iterable[int]:
        for member in self.members.values():
            yield member.deadline_ms
            if member.revoke_deadline_ms is not None:
                yield member.revoke_deadline_ms

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        is_settled = all(each.is_complete and each.epoch == self.target_epoch for each in self.members.values())
        return ConsumerGroupState.STABLE if is_settled else ConsumerGroupState.RECONCILING

    # -- heartbeat

    def _heartbeat(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> None:
        try:
            if event.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                reply = self._leave(event, now_ms, actions)
            else:
                reply = self._attend(event, now_ms, actions)
        except _Refused as refusal:
            reply = HeartbeatReply(
                error=refusal.error,
                message=str(refusal),
                member_id=event.member_id,
            )
        actions.append(Answer(ticket=event.ticket, reply=reply))

    def _attend(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> HeartbeatReply:
        self._check_request(event)
        is_joining = event.member_epoch == 0
        count = len(self.members)
        member = self._join(event) if is_joining else self._known(event)
        is_changed = member.update(event)
        if len(self.members) > count or is_changed:
            self._raise_epoch(f"member {member.member_id} joined or changed its mind", actions)
        if self.epoch > self.target_epoch:
            self._retarget()
        before = member.epoch, member.assigned, member.revoking
        self._reconcile(member, event.owned, now_ms)
        member.deadline_ms = now_ms + self.settings.session_timeout_ms
        is_moved = before != (member.epoch, member.assigned, member.revoking)
        if is_moved or is_changed or is_joining:
            actions.append(StoreGroup(snapshot=self.snapshot()))
        is_full = event.owned is not None and event.rebalance_timeout_ms >= 0
        tells = is_joining or is_full or before[1] != member.assigned
        return HeartbeatReply(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assignment=member.assigned if tells else None,
        )

    def _check_request(self, event: Heartbeat) -> None:
        if self.is_dead:
            raise _Refused(GroupError.GROUP_ID_NOT_FOUND, "the group was deleted")
        if event.server_assignor is not None and event.server_assignor not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise _Refused(GroupError.UNSUPPORTED_ASSIGNOR, f"assignors are: {known}")
        if event.topic_regex:
            self._pattern(event.topic_regex)
        if event.member_epoch == 0:
            if event.rebalance_timeout_ms < 0:
                raise _Refused(GroupError.INVALID_REQUEST, "joining needs a rebalance timeout")
            if event.owned is None or event.owned:
                raise _Refused(GroupError.INVALID_REQUEST, "whoever joins owns nothing, and says so")
            if not event.topic_names and not event.topic_regex:
                raise _Refused(GroupError.INVALID_REQUEST, "joining needs topics to read")

    def _join(self, event: Heartbeat) -> Member:
        owner = self._static.get(event.instance_id) if event.instance_id is not None else None
        member_id = event.member_id or event.spare_member_id
        if owner is not None and owner != member_id:
            if not self.members[owner].has_left:
                raise _Refused(GroupError.UNRELEASED_INSTANCE_ID, f"instance {event.instance_id} is still with {owner}")
            return self._replace_static(owner, member_id)
        member = self.members.get(member_id)
        if member is None:
            if len(self.members) >= self.settings.members_max:
                raise _Refused(GroupError.GROUP_MAX_SIZE_REACHED, "the group is full")
            member = Member(member_id=member_id, instance_id=event.instance_id)
            self.members[member_id] = member
            if event.instance_id is not None:
                self._static[event.instance_id] = member_id
        member.has_left = False
        return member

    def _replace_static(self, old_id: str, new_id: str) -> Member:
        """A static member is back: it inherits the share, and owns none of it yet."""
        member = self.members.pop(old_id)
        for slot in member.holds:
            del self._owners[slot]
        member.member_id = new_id
        member.has_left = False
        member.revoking = frozenset()
        member.epoch, member.previous_epoch = 0, -1
        self.members[new_id] = member
        for slot in member.holds:
            self._owners[slot] = new_id
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        return member

    def _known(self, event: Heartbeat) -> Member:
        if event.instance_id is not None:
            owner = self._static.get(event.instance_id)
            if owner is None:
                raise _Refused(GroupError.UNKNOWN_MEMBER_ID, f"no instance {event.instance_id}")
            if owner != event.member_id:
                raise _Refused(GroupError.FENCED_INSTANCE_ID, f"instance {event.instance_id} is now {owner}")
        member = self.members.get(event.member_id)
        if member is None:
            raise _Refused(GroupError.UNKNOWN_MEMBER_ID, f"no member {event.member_id}")
        if not member.accepts(event):
            raise _Refused(
                GroupError.FENCED_MEMBER_EPOCH, f"member epoch {event.member_epoch}, expected {member.epoch}"
            )
        return member

    def _leave(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> HeartbeatReply:
        member_id = event.member_id
        if event.instance_id is not None:
            member_id = self._static.get(event.instance_id, "")
            if event.member_id and member_id and member_id != event.member_id:
                raise _Refused(GroupError.FENCED_INSTANCE_ID, f"instance {event.instance_id} is now {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise _Refused(GroupError.UNKNOWN_MEMBER_ID, f"no member {event.member_id}")
        if event.member_epoch == LEAVING_FOR_A_WHILE and member.instance_id is not None:
            member.has_left = True
            member.revoke_deadline_ms = None
        else:
            self._remove(member, now_ms)
            self._raise_epoch(f"member {member_id} left", actions)
        actions.append(StoreGroup(snapshot=self.snapshot()))
        return HeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch)

    def _reconcile(self, member: Member, owned: frozenset[Slot] | None, now_ms: int) -> None:
        for slot in member.holds:
            self._owners.pop(slot, None)
        member.reconcile(target_epoch=self.target_epoch, owned=owned, owners=self._owners)
        for slot in member.holds:
            self._owners[slot] = member.member_id
        if not member.revoking:
            member.revoke_deadline_ms = None
        elif member.revoke_deadline_ms is None:
            member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms

    # -- targets

    def _raise_epoch(self, reason: str, actions: list[Action]) -> None:
        self.epoch += 1
        actions.append(EpochStarted(epoch=self.epoch, reason=reason))

    def _retarget(self) -> None:
        subscribers = [
            Subscriber(
                member_id=member.member_id,
                instance_id=member.instance_id,
                topics=frozenset(self._topics[name].topic_id for name in self.topics_of(member)),
                has=member.target,
            )
            for member in self.members.values()
        ]
        self._subscribed = self._wanted_topics()
        target = ASSIGNORS[self.assignor](subscribers, self._subscribed)
        for member in self.members.values():
            if member.target != target[member.member_id]:
                member.is_complete = False
            member.target = target[member.member_id]
        self.target_epoch = self.epoch

    @property
    def assignor(self) -> str:
        """The one most members ask for."""
        votes = Counter(each.server_assignor for each in self.members.values() if each.server_assignor)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    def topics_of(self, member: Member) -> set[str]:
        """The existing topics this member reads, by name or by pattern."""
        names = {name for name in member.topic_names if name in self._topics}
        if member.topic_regex:
            pattern = self._pattern(member.topic_regex)
            names |= {name for name, shape in self._topics.items() if not shape.is_internal and pattern.matches(name)}
        return names

    def _pattern(self, text: str) -> NamePattern:
        pattern = self._patterns.get(text)
        if pattern is None:
            try:
                pattern = NamePattern(text)
            except InvalidPattern as error:
                raise _Refused(GroupError.INVALID_REGULAR_EXPRESSION, str(error)) from error
            if len(self._patterns) > len(self.members):
                self._patterns.clear()  # Members change their minds; what nobody asks for any more goes.
            self._patterns[text] = pattern
        return pattern

    def _wanted_topics(self) -> dict[bytes, int]:
        names = sorted(set().union(*(self.topics_of(member) for member in self.members.values())))
        return {self._topics[name].topic_id: self._topics[name].partition_count for name in names}

    def _topics_changed(self, topics: Mapping[str, TopicShape], actions: list[Action]) -> None:
        self._topics = topics
        if self.members and self._wanted_topics() != self._subscribed:
            self._raise_epoch("topics changed", actions)

    # -- time

    def _tick(self, now_ms: int, actions: list[Action]) -> None:
        gone = [
            member
            for member in self.members.values()
            if member.deadline_ms <= now_ms
            or (member.revoke_deadline_ms is not None and member.revoke_deadline_ms <= now_ms)
        ]
        for member in gone:
            self._remove(member, now_ms)
        if gone:
            names = ", ".join(each.member_id for each in gone)
            self._raise_epoch(f"out of time: {names}", actions)
            actions.append(StoreGroup(snapshot=self.snapshot()))

    def _remove(self, member: Member, now_ms: int) -> None:
        del self.members[member.member_id]
        for slot in member.holds:
            self._owners.pop(slot, None)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if not self.members:
            self.since_ms = now_ms

    # -- checks

    def check_commit(self, *, member_id: str, member_epoch: int, in_transaction: bool = False) -> GroupError:
        if self.is_dead:
            return GroupError.GROUP_ID_NOT_FOUND
        if member_epoch < 0 and member_id == "" and (in_transaction or not self.members):
            return GroupError.NONE
        member = self.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return GroupError.NONE if member_epoch == member.epoch else GroupError.STALE_MEMBER_EPOCH

    def retire(self) -> GroupError:
        if self.is_dead:
            return GroupError.GROUP_ID_NOT_FOUND
        if self.members:
            return GroupError.NON_EMPTY_GROUP
        self.is_dead = True
        return GroupError.NONE

    # -- keeping

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            since_ms=self.since_ms,
            members=tuple(each.snapshot() for each in self.members.values()),
        )

    @classmethod
    def restore(
        cls,
        snapshot: GroupSnapshot,
        *,
        settings: ConsumerSettings,
        topics: Mapping[str, TopicShape],
        now_ms: int,
    ) -> "ConsumerGroup":
        """A coordinator takes over: members keep what they hold and get a full session to report."""
        group = cls(settings=settings, epoch=snapshot.epoch, target_epoch=snapshot.target_epoch)
        group.since_ms = snapshot.since_ms
        group._topics = topics
        for each in snapshot.members:
            member = Member.restore(each, target_epoch=snapshot.target_epoch)
            member.deadline_ms = now_ms + settings.session_timeout_ms
            if member.revoking:
                member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms
            group.members[each.member_id] = member
            if each.instance_id is not None:
                group._static[each.instance_id] = each.member_id
            for slot in member.holds:
                group._owners[slot] = each.member_id
        if group.members:
            # Topics may have changed while nobody was watching; one more round is cheap and finds out.
            group.epoch += 1
        group._wake_ms = min(group._deadlines(), default=None)
        return group

    def check_invariants(self) -> None:
        assert self.target_epoch <= self.epoch, "the target is ahead of the group"
        holders: dict[Slot, str] = {}
        for member in self.members.values():
            assert member.epoch <= self.target_epoch, "a member is ahead of the target"
            assert not member.assigned & member.revoking, "both given and taken away"
            assert (member.revoke_deadline_ms is None) == (not member.revoking or member.has_left)
            for slot in member.holds:
                assert slot not in holders, "a partition has two holders"
                holders[slot] = member.member_id
        assert holders == self._owners, "owners and members disagree"
        statics = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        assert statics == self._static, "static names and members disagree"
