"""One member of a classic group."""

from dataclasses import dataclass

from headrace.broker.groups.classic.events import JoinedMember, MemberSnapshot, Protocol


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    has_synced: bool = True
    """Has asked for its share of the present generation."""
    deadline_ms: int = 0
    """When silence becomes departure."""
    is_new: bool = False
    """Has never been part of a generation: even a parked join may expire then."""

    @property
    def is_waiting(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    def renew(self, now_ms: int) -> None:
        """A sign of life. A parked first join has its own, longer deadline, which this leaves alone."""
        if not self.is_new:
            self.deadline_ms = now_ms + self.session_timeout_ms

    def metadata(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(
            member_id=self.member_id, instance_id=self.instance_id, metadata=self.metadata(protocol_name)
        )

    def snapshot(self, protocol_name: str | None) -> MemberSnapshot:
        return MemberSnapshot(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=self.assignment,
        )

    @classmethod
    def restore(cls, snapshot: MemberSnapshot, *, protocol_name: str, now_ms: int) -> "Member":
        return cls(
            member_id=snapshot.member_id,
            instance_id=snapshot.instance_id,
            client_id=snapshot.client_id,
            client_host=snapshot.client_host,
            session_timeout_ms=snapshot.session_timeout_ms,
            rebalance_timeout_ms=snapshot.rebalance_timeout_ms,
            protocols=(Protocol(name=protocol_name, metadata=snapshot.subscription),),
            assignment=snapshot.assignment,
            deadline_ms=now_ms + snapshot.session_timeout_ms,
        )
