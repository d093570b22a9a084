"""One member of a KIP-848 group, and how it moves from what it has to what it should have.

A member never gets a partition that another still holds, and is not told a new epoch before it has let go of what
it must give up. `revoking` is what it was told to drop and has not yet confirmed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.events import ClassicTerms, Heartbeat, MemberSnapshot, Sight


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 300_000
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    sight: Sight | None = None
    """What its pattern may find; rights are those of its last request."""
    topics: frozenset[bytes] = frozenset()
    """The topics it reads, as the last target saw them."""
    server_assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    has_left: bool = False
    """A static member on leave: its place is kept until its session ends."""
    assigned: frozenset[TopicIdPartition] = frozenset()
    revoking: frozenset[TopicIdPartition] = frozenset()
    target: frozenset[TopicIdPartition] = frozenset()
    is_complete: bool = False
    """Has all of its target."""
    deadline_ms: int = 0
    """When silence becomes departure."""
    due_ms: int | None = None
    """By when it must have done what it was told: confirmed a revocation; a classic one, joined again or synced."""
    classic: ClassicTerms | None = None
    """How a member that speaks the classic protocol wants to be treated; None: it speaks the new one."""

    def session_timeout_ms(self, default_ms: int) -> int:
        return default_ms if self.classic is None else self.classic.session_timeout_ms

    def update(self, event: Heartbeat) -> bool:
        """Take over what the request says anew; true when assignments must be thought over."""
        before = self.topic_names, self.topic_regex, self.server_assignor
        if event.topic_names is not None:
            self.topic_names = event.topic_names
        if event.topic_regex is not None:
            self.topic_regex = event.topic_regex
        if event.server_assignor is not None:
            self.server_assignor = event.server_assignor
        if event.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = event.rebalance_timeout_ms
        if event.rack_id is not None:
            self.rack_id = event.rack_id
        self.client_id = event.client_id
        self.client_host = event.client_host
        self.classic = event.classic
        return before != (self.topic_names, self.topic_regex, self.server_assignor)

    def accepts(self, event: Heartbeat) -> bool:
        """Is the epoch of this request mine, or that of my last request whose answer was lost?"""
        if event.member_epoch == self.epoch:
            return True
        return event.member_epoch == self.previous_epoch and event.owned is not None and event.owned <= self.assigned

    def reconcile(
        self,
        *,
        target_epoch: int,
        owned: frozenset[TopicIdPartition] | None,
        owners: Mapping[TopicIdPartition, str],
    ) -> None:
        """One step towards the target, as far as this member and the others allow."""
        if self.revoking:
            if owned is None or owned & self.revoking:
                return
            self.revoking = frozenset()
        if self.is_complete and self.epoch == target_epoch:
            return
        kept = self.assigned & self.target
        dropped = self.assigned - self.target
        # With owned known, what it does not own needs no confirmation.
        unconfirmed = dropped if owned is None else dropped & owned
        self.assigned = kept
        if unconfirmed:
            self.revoking = unconfirmed
            self.is_complete = False
            return
        wanted = self.target - kept
        free = frozenset(partition for partition in wanted if owners.get(partition, self.member_id) == self.member_id)
        self.assigned = kept | free
        self.is_complete = free == wanted
        if self.epoch != target_epoch:
            self.previous_epoch = self.epoch
            self.epoch = target_epoch

    @property
    def holds(self) -> frozenset[TopicIdPartition]:
        return self.assigned | self.revoking

    def snapshot(self) -> MemberSnapshot:
        return MemberSnapshot(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topic_names=self.topic_names,
            topic_regex=self.topic_regex,
            server_assignor=self.server_assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            has_left=self.has_left,
            assigned=self.assigned,
            revoking=self.revoking,
            target=self.target,
            classic=self.classic,
        )

    @classmethod
    def restore(cls, snapshot: MemberSnapshot, *, target_epoch: int) -> "Member":
        return cls(
            member_id=snapshot.member_id,
            instance_id=snapshot.instance_id,
            rack_id=snapshot.rack_id,
            client_id=snapshot.client_id,
            client_host=snapshot.client_host,
            rebalance_timeout_ms=snapshot.rebalance_timeout_ms,
            topic_names=snapshot.topic_names,
            topic_regex=snapshot.topic_regex,
            server_assignor=snapshot.server_assignor,
            epoch=snapshot.epoch,
            previous_epoch=snapshot.previous_epoch,
            has_left=snapshot.has_left,
            assigned=snapshot.assigned,
            revoking=snapshot.revoking,
            target=snapshot.target,
            classic=snapshot.classic,
            is_complete=snapshot.epoch == target_epoch and snapshot.assigned == snapshot.target,
        )
