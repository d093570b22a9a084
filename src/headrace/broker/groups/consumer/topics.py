"""The topics there are, and which of them a member of a KIP-848 group reads, by name or by pattern."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.broker.groups.consumer.assignors import Slot
from headrace.broker.groups.consumer.events import TopicShape
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.pattern import NamePattern
from headrace.broker.groups.embedded import TopicIndex


@dataclass(slots=True)
class KnownTopics:
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)
    _patterns: dict[str, NamePattern] = field(default_factory=dict)

    def topics_of(self, member: Member) -> set[str]:
        names = {name for name in member.topic_names if name in self.shapes}
        if member.topic_regex:
            pattern = self._pattern(member.topic_regex)
            names |= {name for name, shape in self.shapes.items() if not shape.is_internal and pattern.matches(name)}
        return names

    def ids_of(self, member: Member) -> frozenset[bytes]:
        return frozenset(self.shapes[name].topic_id for name in self.topics_of(member))

    def wanted(self, members: Iterable[Member]) -> dict[bytes, int]:
        """The topics that any of the members reads, with their partition counts."""
        names = sorted(set().union(*(self.topics_of(member) for member in members)))
        return {self.shapes[name].topic_id: self.shapes[name].partition_count for name in names}

    def forget_patterns_but_of(self, members: Iterable[Member]) -> None:
        """Members change their minds; what nobody asks for any more goes."""
        used = {member.topic_regex for member in members}
        self._patterns = {text: pattern for text, pattern in self._patterns.items() if text in used}

    def slots(self, indexes: Iterable[TopicIndex]) -> frozenset[Slot]:
        """Partitions by the id of their topic; those that do not exist are left out."""
        shapes = self.shapes
        return frozenset(
            (shapes[name].topic_id, index)
            for name, index in indexes
            if name in shapes and 0 <= index < shapes[name].partition_count
        )

    def named(self, slots: Iterable[Slot]) -> frozenset[TopicIndex]:
        """Partitions by the name of their topic; those of deleted topics are left out."""
        names = {shape.topic_id: name for name, shape in self.shapes.items()}
        return frozenset((names[topic_id], index) for topic_id, index in slots if topic_id in names)

    def _pattern(self, text: str) -> NamePattern:
        if text not in self._patterns:
            self._patterns[text] = NamePattern(text)
        return self._patterns[text]
