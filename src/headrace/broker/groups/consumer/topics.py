"""The topics there are, and which of them a member of a KIP-848 group reads, by name or by pattern."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.events import Sight, TopicShape
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.pattern import InvalidPattern, NamePattern
from headrace.broker.groups.embedded import TopicIndex


@dataclass(slots=True)
class KnownTopics:
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)
    _matching: dict[str, tuple[Mapping[str, TopicShape], frozenset[str]]] = field(default_factory=dict)
    """What each pattern has found, and among which topics: every heartbeat asks, and the answer changes with the topics."""

    def topics_of(self, member: Member) -> set[str]:
        names = {name for name in member.topic_names if name in self.shapes}
        if member.topic_regex:
            found = self._matched(member.topic_regex)
            sight = member.sight
            names |= found if sight is None else {name for name in found if sight.sees(name)}
        return names

    def sight_of_share(self, member: Member) -> Sight:
        """For a member whose rights are not known until it reports: its pattern finds what it was given already."""
        names = frozenset(name for name, _ in self.named(member.target))
        return Sight((names,), names.__contains__)

    def check_pattern(self, text: str) -> None:
        """Raises `InvalidPattern` for what is none, and for one that would take too long on the topics there are."""
        if text not in self._matching:
            NamePattern(text).check_cost(self.shapes)

    def ids_of(self, member: Member) -> frozenset[bytes]:
        return frozenset(self.shapes[name].topic_id for name in self.topics_of(member))

    def wanted(self, members: Iterable[Member]) -> dict[bytes, int]:
        """The topics that any of the members reads, with their partition counts."""
        names = sorted(set().union(*(self.topics_of(member) for member in members)))
        return {self.shapes[name].topic_id: self.shapes[name].partition_count for name in names}

    def forget_patterns_but_of(self, members: Iterable[Member]) -> None:
        """Members change their minds; what nobody asks for any more goes."""
        used = {member.topic_regex for member in members}
        self._matching = {text: found for text, found in self._matching.items() if text in used}

    def partitions(self, indexes: Iterable[TopicIndex]) -> frozenset[TopicIdPartition]:
        """Partitions by the id of their topic; those that do not exist are left out."""
        shapes = self.shapes
        return frozenset(
            (shapes[name].topic_id, index)
            for name, index in indexes
            if name in shapes and 0 <= index < shapes[name].partition_count
        )

    def named(self, partitions: Iterable[TopicIdPartition]) -> frozenset[TopicIndex]:
        """Partitions by the name of their topic; those of deleted topics are left out."""
        names = {shape.topic_id: name for name, shape in self.shapes.items()}
        return frozenset((names[topic_id], index) for topic_id, index in partitions if topic_id in names)

    def _matched(self, text: str) -> frozenset[str]:
        known = self._matching.get(text)
        if known is None or known[0] is not self.shapes:
            known = self._matching[text] = (self.shapes, self._select(text))
        return known[1]

    def _select(self, text: str) -> frozenset[str]:
        open_to_clients = [name for name, shape in self.shapes.items() if not shape.is_internal]
        try:
            return NamePattern(text).select(open_to_clients)
        except InvalidPattern:
            # It was taken when there were fewer topics, or by an earlier release: its member reads what it names.
            return frozenset()
