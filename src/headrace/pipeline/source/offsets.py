"""Places in a topic, as Spark writes them into checkpoints and people write them into options.

The JSON is that of Spark's Kafka source, `{"orders": {"0": 23, "1": 45}}`, with one more key that no topic can have:
`"@topicIds": {"orders": "..."}`. A topic that is deleted and created again keeps its name and loses its id, which is how
a query notices instead of skipping records in silence. It stops, or goes on with the new topic where loss is no matter.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headrace.pipeline.source.errors import InvalidOption, TopicRecreated

EARLIEST: Final = -2
LATEST: Final = -1
TOPIC_IDS_KEY: Final = "@topicIds"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a query stands: the next offset of every partition, and whose offsets these are."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]

    def to_json(self) -> dict[str, dict[str, Any]]:
        document = format_offsets(self.offsets)
        document[TOPIC_IDS_KEY] = dict(sorted(self.topic_ids.items()))
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Position":
        return cls(offsets=parse_places(document), topic_ids=dict(document.get(TOPIC_IDS_KEY, {})))

    def within(self, topic_ids: Mapping[str, str], *, is_loss_fatal: bool) -> "Position":
        """This position without topics that have another id in `topic_ids`: its offsets mean nothing in those.

        Raises `TopicRecreated` when there are any and that matters.
        """
        recreated = self.recreated(topic_ids)
        if not recreated:
            return self
        if is_loss_fatal:
            name = recreated[0]
            raise TopicRecreated(
                f"topic {name} was deleted and created again: the query's offsets belong to {self.topic_ids[name]}, the "
                f"topic is now {topic_ids[name]}. Set failOnDataLoss=false to go on with the new topic from its beginning, "
                "or start a new checkpoint (headrace pipeline reset)."
            )
        return Position(
            offsets={place: offset for place, offset in self.offsets.items() if place.topic not in recreated},
            topic_ids={name: topic_id for name, topic_id in self.topic_ids.items() if name not in recreated},
        )

    def recreated(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Topics of this position that have another id in `topic_ids`."""
        return [name for name, topic_id in self.topic_ids.items() if topic_ids.get(name, topic_id) != topic_id]


def format_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = {}
    for place in sorted(offsets):
        document.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return document


def parse_places(document: Any) -> dict[TopicPartition, int]:
    """`{"topic": {"0": number}}`, for offsets and for timestamps. Raises `InvalidOption`."""
    if not isinstance(document, Mapping):
        raise InvalidOption(f'expected {{"topic": {{"partition": number}}}}, got {document!r}')
    places: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if topic == TOPIC_IDS_KEY:
            continue
        if not isinstance(partitions, Mapping):
            raise InvalidOption(f"topic {topic} needs an object of partitions, got {partitions!r}")
        for partition, number in partitions.items():
            if not str(partition).isdigit() or isinstance(number, bool) or not isinstance(number, int):
                raise InvalidOption(f"topic {topic}: partition {partition!r} with {number!r}")
            places[TopicPartition(topic, int(partition))] = number
    return places
