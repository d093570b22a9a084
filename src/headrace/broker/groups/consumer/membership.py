"""Who is in a KIP-848 group and who holds what, whichever protocol a member speaks.

Three numbers move the group. The *group epoch* rises when members, subscriptions or topics change. The *target
epoch* follows when the assignor has said who should have what. Each *member epoch* follows when that member has let
go of everything it must give up; then it gets what is free, and the rest as the others let go.

Rules: a partition has at most one holder, where holding ends only when the member says so, leaves, or its time is up.
A member that shows an epoch other than its own is fenced and has to join again with nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from headrace.broker.groups.consumer.assignors import ASSIGNORS, Subscriber, TopicIdPartition
from headrace.broker.groups.consumer.events import (
    Action,
    EpochStarted,
    GroupSnapshot,
    Heartbeat,
    Sight,
    TopicShape,
)
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.pattern import InvalidPattern
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.consumer.topics import KnownTopics
from headrace.broker.groups.outcome import GroupError


class Refused(Exception):
    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error


class Attendance(msgspec.Struct, frozen=True, kw_only=True):
    """What a request of a member came to."""

    member: Member
    has_moved: bool
    """Something changed that must outlive the coordinator."""
    has_new_share: bool


@dataclass(slots=True)
class Membership:
    settings: ConsumerSettings
    epoch: int = 0
    target_epoch: int = 0
    since_ms: int = 0
    """When the group last became empty."""
    members: dict[str, Member] = field(default_factory=dict)
    topics: KnownTopics = field(default_factory=KnownTopics)
    _static: dict[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    _owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    _subscribed: dict[bytes, int] = field(default_factory=dict)
    """Topics somebody wants, with their partition counts, as the last target saw them."""

    # -- coming

    def attend(self, event: Heartbeat, now_ms: int, actions: list[Action]) -> Attendance:
        """A member joins (epoch 0) or reports: take over what is new, and move it as far as it can move."""
        is_joining = event.member_epoch == 0
        count = len(self.members)
        found = self._find_former(event) if is_joining else self._find_current(event)
        # Once it is known who asks, as in Kafka, and before anything has changed.
        self._check_pattern(event.topic_regex)
        member = self._join(event, found) if is_joining or found is None else found
        is_changed = member.update(event) | self._look(member, event.sight)
        if len(self.members) > count or is_changed:
            self.raise_epoch(f"member {member.member_id} joined or changed its mind", actions)
        if self.epoch > self.target_epoch:
            self._retarget()
        before = member.epoch, member.assigned, member.revoking
        self._reconcile(member, event.owned, now_ms)
        self.renew(member, now_ms)
        has_moved = before != (member.epoch, member.assigned, member.revoking)
        return Attendance(
            member=member,
            has_moved=has_moved or is_changed or is_joining,
            has_new_share=before[1] != member.assigned,
        )

    def _look(self, member: Member, sight: Sight | None) -> bool:
        """The member reports with these rights; true when its pattern finds other topics with them than it reads."""
        former, member.sight = member.sight, sight
        if not member.topic_regex or (former and former.key) == (sight and sight.key):
            return False
        # The former sight cannot be asked any more: its answers are those of now. And before a new target nobody need ask.
        return self.epoch == self.target_epoch and self.topics.ids_of(member) != member.topics

    def _check_pattern(self, text: str | None) -> None:
        if not text:
            return
        try:
            self.topics.check_pattern(text)
        except InvalidPattern as error:
            raise Refused(GroupError.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def _find_former(self, event: Heartbeat) -> Member | None:
        """Who had the ids of whoever joins until now; None where nobody had, and there is room for one more."""
        owner = self._static.get(event.instance_id) if event.instance_id is not None else None
        member_id = event.member_id or event.spare_member_id
        if owner is not None and owner != member_id:
            former = self.members[owner]
            # Only members of the new protocol say that they will be back; a classic one is simply replaced.
            if event.classic is None and former.classic is None and not former.has_left:
                raise Refused(GroupError.UNRELEASED_INSTANCE_ID, f"instance {event.instance_id} is still with {owner}")
            return former
        if member_id not in self.members and len(self.members) >= self.settings.members_max:
            raise Refused(GroupError.GROUP_MAX_SIZE_REACHED, "the group is full")
        return self.members.get(member_id)

    def _join(self, event: Heartbeat, former: Member | None) -> Member:
        member_id = event.member_id or event.spare_member_id
        if former is not None and former.member_id != member_id:
            return self._replace_static(former.member_id, member_id)
        member = former
        if member is None:
            member = Member(member_id=member_id, instance_id=event.instance_id)
            self.members[member_id] = member
            if event.instance_id is not None:
                self._static[event.instance_id] = member_id
        member.has_left = False
        return member

    def _replace_static(self, old_id: str, new_id: str) -> Member:
        """A static member is back: it inherits the share, and owns none of it yet."""
        member = self.members.pop(old_id)
        for partition in member.holds:
            del self._owners[partition]
        member.member_id = new_id
        member.has_left = False
        member.revoking = frozenset()
        member.epoch, member.previous_epoch = 0, -1
        self.members[new_id] = member
        for partition in member.holds:
            self._owners[partition] = new_id
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        return member

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """The member of that id, which must be the one that has the instance id now."""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"no instance {instance_id}")
            if owner != member_id:
                raise Refused(GroupError.FENCED_INSTANCE_ID, f"instance {instance_id} is now {owner}")
        member = self.members.get(member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"no member {member_id}")
        return member

    def _find_current(self, event: Heartbeat) -> Member:
        member = self.find(event.member_id, event.instance_id)
        if not member.accepts(event):
            raise Refused(GroupError.FENCED_MEMBER_EPOCH, f"member epoch {event.member_epoch}, expected {member.epoch}")
        return member

    def find_leaving(self, member_id: str, instance_id: str | None) -> Member:
        """As `find`; an operator removes a static member by the only name it knows, without a member id."""
        if instance_id is not None and member_id == "":
            member_id = self._static.get(instance_id, "")
        return self.find(member_id, instance_id)

    def renew(self, member: Member, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms(self.settings.session_timeout_ms)

    def remove(self, member: Member, now_ms: int) -> None:
        del self.members[member.member_id]
        for partition in member.holds:
            self._owners.pop(partition, None)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if not self.members:
            self.since_ms = now_ms

    @property
    def is_all_classic(self) -> bool:
        """There are members, and none of them needs this kind of group any more."""
        return bool(self.members) and all(each.classic is not None for each in self.members.values())

    # -- moving

    def raise_epoch(self, reason: str, actions: list[Action]) -> None:
        self.epoch += 1
        actions.append(EpochStarted(epoch=self.epoch, reason=reason))

    def topics_changed(self, shapes: Mapping[str, TopicShape], actions: list[Action]) -> None:
        self.topics.shapes = shapes
        if self.members and self.topics.wanted(self.members.values()) != self._subscribed:
            self.raise_epoch("topics changed", actions)

    @property
    def assignor(self) -> str:
        """The one most members ask for; among equals, or where nobody asks, the first of those there are."""
        votes = Counter(each.server_assignor for each in self.members.values())
        return max(ASSIGNORS, key=votes.__getitem__)

    def _retarget(self) -> None:
        for member in self.members.values():
            member.topics = self.topics.ids_of(member)
        subscribers = [
            Subscriber(
                member_id=member.member_id,
                instance_id=member.instance_id,
                topics=member.topics,
                has=member.target,
            )
            for member in self.members.values()
        ]
        self._subscribed = self.topics.wanted(self.members.values())
        self.topics.forget_patterns_but_of(self.members.values())
        target = ASSIGNORS[self.assignor](subscribers, self._subscribed)
        for member in self.members.values():
            if member.target != target[member.member_id]:
                member.is_complete = False
            member.target = target[member.member_id]
        self.target_epoch = self.epoch

    def _reconcile(self, member: Member, owned: frozenset[TopicIdPartition] | None, now_ms: int) -> None:
        for partition in member.holds:
            self._owners.pop(partition, None)
        member.reconcile(target_epoch=self.target_epoch, owned=owned, owners=self._owners)
        for partition in member.holds:
            self._owners[partition] = member.member_id
        if member.classic is not None:
            return  # It is given time to sync and to join again instead.
        if not member.revoking:
            member.due_ms = None
        elif member.due_ms is None:
            member.due_ms = now_ms + member.rebalance_timeout_ms

    def can_move(self, member: Member) -> bool:
        """Would this member get further if it asked again?"""
        if member.epoch < self.epoch or member.revoking:
            return True
        return not member.is_complete and all(
            partition not in self._owners for partition in member.target - member.assigned
        )

    # -- keeping

    def deadlines(self) -> Iterable[int]:
        for member in self.members.values():
            yield member.deadline_ms
            if member.due_ms is not None:
                yield member.due_ms

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            since_ms=self.since_ms,
            members=tuple(each.snapshot() for each in self.members.values()),
        )

    @classmethod
    def restore(
        cls, snapshot: GroupSnapshot, *, settings: ConsumerSettings, topics: Mapping[str, TopicShape], now_ms: int
    ) -> "Membership":
        restored = cls(
            settings=settings,
            epoch=snapshot.epoch,
            target_epoch=snapshot.target_epoch,
            since_ms=snapshot.since_ms,
            topics=KnownTopics(topics),
        )
        for each in snapshot.members:
            member = Member.restore(each, target_epoch=snapshot.target_epoch)
            member.sight = restored.topics.sight_of_share(member)
            restored.renew(member, now_ms)
            if member.revoking and not member.has_left:
                member.due_ms = now_ms + member.rebalance_timeout_ms
            restored.members[each.member_id] = member
            if each.instance_id is not None:
                restored._static[each.instance_id] = each.member_id
            for partition in member.holds:
                restored._owners[partition] = each.member_id
        if restored.members:
            # Topics may have changed while nobody was watching; one more round is cheap and finds out.
            restored.epoch += 1
        return restored

    def check_invariants(self) -> None:
        assert self.target_epoch <= self.epoch, "the target is ahead of the group"
        holders: dict[TopicIdPartition, str] = {}
        for member in self.members.values():
            assert member.epoch <= self.target_epoch, "a member is ahead of the target"
            assert not member.assigned & member.revoking, "both given and taken away"
            if member.classic is None:
                assert (member.due_ms is None) == (not member.revoking or member.has_left)
            for partition in member.holds:
                assert partition not in holders, "a partition has two holders"
                holders[partition] = member.member_id
        assert holders == self._owners, "owners and members disagree"
        statics = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        assert statics == self._static, "static names and members disagree"
