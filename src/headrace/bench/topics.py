"""Topics of the benchmark: made, counted and removed through the admin client, outside every measured window."""

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headrace.bench.errors import LoadFailed

_ANSWER_SECONDS_MAX: Final = 120
_POLL_SECONDS: Final = 0.05
_BITS_64: Final = 2**64 - 1


def fresh_name(prefix: str) -> str:
    """Never used before: brokers remove a deleted topic in their own time."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def create_topics(
    bootstrap: str, names: list[str], *, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Create topics and wait until every partition has a leader."""
    admin = _admin(bootstrap)
    created = admin.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {})) for name in names],
        operation_timeout=_ANSWER_SECONDS_MAX,
        request_timeout=_ANSWER_SECONDS_MAX,
    )
    _await_all(created)
    await_leaders(bootstrap, names, partitions=partitions)


def has_topic(bootstrap: str, name: str) -> bool:
    return name in _admin(bootstrap).list_topics(timeout=_ANSWER_SECONDS_MAX).topics


def describe_topic_id(bootstrap: str, name: str) -> str:
    """The topic's id as tables and manifests write it."""
    admin = _admin(bootstrap)
    topic_id = admin.describe_topics(TopicCollection([name]))[name].result().topic_id
    bits = (topic_id.get_most_significant_bits() & _BITS_64) << 64 | (topic_id.get_least_significant_bits() & _BITS_64)
    return str(uuid.UUID(int=bits))


def delete_topics(bootstrap: str, names: list[str]) -> None:
    admin = _admin(bootstrap)  # Dropped before the answer has come, it would take the answer with it.
    _await_all(admin.delete_topics(names, request_timeout=_ANSWER_SECONDS_MAX))


def await_leaders(bootstrap: str, names: list[str], *, partitions: int) -> None:
    admin = _admin(bootstrap)
    deadline = time.monotonic() + _ANSWER_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            topics = admin.list_topics(timeout=10).topics
        except KafkaException:
            continue
        known = [topics[name] for name in names if name in topics]
        led = sum(entry.leader >= 0 for topic in known for entry in topic.partitions.values())
        if led == partitions * len(names):
            return
        time.sleep(_POLL_SECONDS)
    raise LoadFailed(f"not every partition of {names[0]} had a leader after {_ANSWER_SECONDS_MAX} s")


def count_records(bootstrap: str, name: str, partitions: Iterable[int]) -> int:
    """Records of a fresh topic, by its end offsets: what the broker says it has, not what the client believes."""
    wanted = {TopicPartition(name, index): OffsetSpec.latest() for index in partitions}
    admin = _admin(bootstrap)
    answers = admin.list_offsets(wanted, request_timeout=_ANSWER_SECONDS_MAX)
    return sum(answer.result().offset for answer in answers.values())


def _admin(bootstrap: str) -> Any:  # confluent-kafka is untyped
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _await_all(answers: dict[str, Any]) -> None:
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            raise LoadFailed(f"topic {name}: {error}") from error
