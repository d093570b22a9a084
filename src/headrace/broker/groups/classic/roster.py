"""Who belongs to a classic group: its members by id, the static ones by name, the ones still expected, the leader."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.broker.groups.classic.events import Protocol
from headrace.broker.groups.classic.member import Member
from headrace.broker.groups.outcome import GroupError


@dataclass(slots=True)
class Roster:
    members: dict[str, Member] = field(default_factory=dict)
    leader_id: str | None = None
    _static: dict[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    _expected: dict[str, int] = field(default_factory=dict)
    """Member ids handed out by KIP-394 whose owners have not come back yet, with their deadline."""

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        """A copy: whoever goes through the members may remove some."""
        return iter(list(self.members.values()))

    @property
    def expected_count(self) -> int:
        """Those who were told a member id and have not come back with it."""
        return len(self._expected)

    @property
    def is_complete(self) -> bool:
        """Everybody has joined and nobody is expected."""
        return not self._expected and all(each.join_ticket is not None for each in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member sets the pace."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    # -- coming and going

    def expect(self, member_id: str, until_ms: int) -> None:
        self._expected[member_id] = until_ms

    def is_expected(self, member_id: str) -> bool:
        return member_id in self._expected

    def forget_expected(self, member_id: str) -> None:
        del self._expected[member_id]

    def drop_late(self, now_ms: int) -> bool:
        """Forget those who were expected until now; true when there were any."""
        late = [member_id for member_id, until_ms in self._expected.items() if until_ms <= now_ms]
        for member_id in late:
            del self._expected[member_id]
        return bool(late)

    def add(self, member: Member) -> None:
        self._expected.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member has returned under another id."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        member.member_id = member_id
        self.members[member_id] = member
        self._static[member.instance_id] = member_id

    def find_static(self, instance_id: str | None) -> Member | None:
        member_id = self._static.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def check(self, member_id: str, instance_id: str | None) -> GroupError:
        """Is this one of us, and the one that has that instance id now?"""
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return GroupError.FENCED_INSTANCE_ID
        return GroupError.NONE if member_id in self.members else GroupError.UNKNOWN_MEMBER_ID

    def elect_leader(self) -> bool:
        """Prefer the leader there is; it must have joined. False: nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.join_ticket is None:
            joined = (each.member_id for each in self.members.values() if each.join_ticket is not None)
            self.leader_id = next(joined, None)
        return self.leader_id is not None

    # -- agreeing

    def candidates(self) -> set[str]:
        return common_protocols(member.protocols for member in self.members.values())

    def has_common(self, protocols: tuple[Protocol, ...]) -> bool:
        common = self.candidates()
        return any(each.name in common for each in protocols)

    def select_protocol(self) -> str:
        return elect_protocol([member.protocols for member in self.members.values()])

    def deadlines(self) -> Iterable[int]:
        yield from self._expected.values()
        for member in self.members.values():
            yield member.deadline_ms

    def check_invariants(self) -> None:
        statics = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        assert statics == self._static, "static names and members disagree"
        assert not self._expected.keys() & self.members.keys(), "a member is still expected"
        assert all(member_id == each.member_id for member_id, each in self.members.items())


def common_protocols(offers: Iterable[tuple[Protocol, ...]]) -> set[str]:
    """The protocols that every member speaks."""
    return set.intersection(*({each.name for each in offer} for offer in offers))


def elect_protocol(offers: Sequence[tuple[Protocol, ...]]) -> str:
    """Of the common ones, that which most members like best: each lists its own in order of preference."""
    candidates = common_protocols(offers)
    votes = Counter(next(each.name for each in offer if each.name in candidates) for offer in offers)
    return votes.most_common(1)[0][0]
