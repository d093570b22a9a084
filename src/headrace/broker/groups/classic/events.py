"""What goes into and comes out of a classic group.

A `ticket` is the driver's number for a request that waits for its answer; the machine only gives it back.
"""

from typing import TypeAlias

import msgspec

from headrace.broker.groups.outcome import GroupError


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """One way of assigning that a member offers, with what it wants assigned; the bytes are the members' affair."""

    name: str
    metadata: bytes


# Events


class Join(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """Absent (-1) in JoinGroup v0, where the session timeout stands in for it (KAFKA-8653)."""
    protocol_type: str
    protocols: tuple[Protocol, ...]
    must_know_member_id: bool = False
    """KIP-394: a new dynamic member is told its id and has to come back with it."""
    can_skip_assignment: bool = False
    """The client understands that it leads but need not assign (JoinGroup v9)."""
    spare_member_id: str
    """The id to give, should a new one be needed."""

    @property
    def patience_ms(self) -> int:
        """The rebalance timeout, or what stands in for it."""
        return self.rebalance_timeout_ms if self.rebalance_timeout_ms >= 0 else self.session_timeout_ms


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes] = {}


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    member_id: str
    generation: int
    instance_id: str | None = None


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int = 0
    departures: tuple[Departure, ...]


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed; `next_deadline_ms` says when it matters."""


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Start over, for a reason that is none of the members' doing."""

    reason: str


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """The group goes on as one of the other kind: whoever waits here has to join again there."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of `generation` is durable."""

    generation: int


class StoreFailed(msgspec.Struct, frozen=True, kw_only=True):
    generation: int


Event: TypeAlias = Join | Sync | Heartbeat | Leave | Tick | Rebalance | HandOver | Stored | StoreFailed


# Replies


class JoinedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(msgspec.Struct, frozen=True, kw_only=True):
    error: GroupError = GroupError.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    """Only the leader is told who is there."""
    skip_assignment: bool = False


class SyncReply(msgspec.Struct, frozen=True, kw_only=True):
    error: GroupError = GroupError.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class DepartureReply(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    error: GroupError


# Actions


class AnswerJoin(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    reply: JoinReply


class AnswerSync(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    reply: SyncReply


class AnswerHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    error: GroupError


class AnswerLeave(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    replies: tuple[DepartureReply, ...]


class MemberSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What of a group outlives its coordinator."""

    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader_id: str | None
    members: tuple[MemberSnapshot, ...]
    since_ms: int


class StoreGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Make this durable, then report `Stored` or `StoreFailed`."""

    snapshot: GroupSnapshot


class RebalanceStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A fact worth logging."""

    reason: str


class GenerationStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A fact worth logging."""

    generation: int
    member_count: int


Action: TypeAlias = (
    AnswerJoin | AnswerSync | AnswerHeartbeat | AnswerLeave | StoreGroup | RebalanceStarted | GenerationStarted
)
