"""What goes into and comes out of a KIP-848 consumer group.

A `ticket` is the driver's number for a request that waits for its answer; the machine only gives it back.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.outcome import GroupError

LEAVING = -1
"""Member epoch of a member that says goodbye."""
LEAVING_FOR_A_WHILE = -2
"""Member epoch of a static member that means to come back."""


class TopicShape(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: bytes
    partition_count: int
    is_internal: bool = False


class ClassicTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a member that speaks the classic protocol brought along when it joined."""

    session_timeout_ms: int
    protocols: tuple[classic.Protocol, ...]

    @property
    def protocol(self) -> classic.Protocol:
        """The one it is told that the group uses: they differ in how members assign, and here none does."""
        return self.protocols[0]


class Sight(msgspec.Struct, frozen=True):
    """The topics that a member's pattern may find: those that its principal may describe."""

    key: tuple[object, ...]
    """The same for as long as the answers are the same."""
    sees: Callable[[str], bool]


# Events


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The one request of the protocol. None means "as before"."""

    ticket: int = 0
    member_id: str = ""
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    spare_member_id: str = ""
    """The id to give, should a new one be needed (v0; later clients choose their own)."""
    sight: Sight | None = None
    """None where nobody is asked about rights: a pattern finds every topic."""
    classic: ClassicTerms | None = None
    """Set where this stands for the JoinGroup of a classic member."""


class TopicsChanged(msgspec.Struct, frozen=True, kw_only=True):
    topics: Mapping[str, TopicShape]


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed; `next_deadline_ms` says when it matters."""


ClassicRequest: TypeAlias = classic.Join | classic.Sync | classic.Heartbeat | classic.Leave
Event: TypeAlias = Heartbeat | TopicsChanged | Tick | ClassicRequest


# Actions


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    error: GroupError = GroupError.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None
    """None: as before."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    ticket: int
    reply: HeartbeatReply


class MemberSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: frozenset[str]
    topic_regex: str
    server_assignor: str | None
    epoch: int
    previous_epoch: int
    has_left: bool
    assigned: frozenset[TopicIdPartition]
    revoking: frozenset[TopicIdPartition]
    target: frozenset[TopicIdPartition]
    classic: ClassicTerms | None = None


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What of a group outlives its coordinator."""

    epoch: int
    target_epoch: int
    since_ms: int
    members: tuple[MemberSnapshot, ...]


class StoreGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Make this durable before any answer of the same step is sent."""

    snapshot: GroupSnapshot


class EpochStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A fact worth logging."""

    epoch: int
    reason: str


class OnlyClassicLeft(msgspec.Struct, frozen=True, kw_only=True):
    """The last member of the new protocol is gone: the group must go on as a classic one, before any answer is sent."""


ClassicAnswer: TypeAlias = classic.AnswerJoin | classic.AnswerSync | classic.AnswerHeartbeat | classic.AnswerLeave
Action: TypeAlias = Answer | ClassicAnswer | StoreGroup | EpochStarted | OnlyClassicLeft
