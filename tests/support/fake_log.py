"""Topics and produce as coordinators see them, in memory, with the moment of durability in the test's hands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from headrace.broker.deferred import Deferred
from headrace.broker.internal_topic import ReplayedBatch
from headrace.errors import HeadraceError, PartitionNotFound, TopicNotFound
from headrace.log.partition import Appended
from headrace.records.batch import Buffer, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_batch_records


@dataclass
class FakePartition:
    topic_name: str
    index: int
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    leader_epoch: int = 3
    removed: bool = False


class FakeTopics:
    """`failure` is what the next creation ends with."""

    is_shared = False

    def __init__(self, **counts: int) -> None:
        self.failure: HeadraceError | None = None
        self.created: list[str] = []
        self.shape_revision = 0
        self.on_removed: list[Callable[[Any], None]] = []  # Any: a topic
        self._topics: dict[str, Any] = {}
        for name, count in counts.items():
            self.make(name, count)

    def make(self, name: str, count: int) -> Any:  # Any: as much of a topic as anybody looks at
        partitions = [FakePartition(name, index) for index in range(count)]
        self.shape_revision += 1
        topic_id = f"{self.shape_revision} {name}".encode().ljust(16)
        topic = SimpleNamespace(name=name, id=topic_id, partitions=partitions, is_internal=False)
        self._topics[name] = topic
        return topic

    def delete(self, name: str) -> None:
        topic = self._topics.pop(name)
        self.shape_revision += 1
        for callback in self.on_removed:
            callback(topic)

    def find(self, name: str) -> Any:
        return self._topics.get(name)

    def get(self, name: str) -> Any:
        if name not in self._topics:
            raise TopicNotFound(name)
        return self._topics[name]

    def has_partition(self, name: str, index: int) -> bool:
        return name in self._topics and 0 <= index < len(self._topics[name].partitions)

    def all(self) -> list[Any]:
        return list(self._topics.values())

    def partition(self, name: str, index: int) -> FakePartition:
        topic = self.get(name)
        if index >= len(topic.partitions):
            raise PartitionNotFound(f"{name}-{index}")
        found: FakePartition = topic.partitions[index]
        return found

    def led_partition(self, name: str, index: int) -> FakePartition:
        return self.partition(name, index)

    def is_being_opened(self, topic: Any, index: int) -> bool:
        return False

    async def ensure_internal(self, name: str, *, partitions: int) -> Any:
        if name in self._topics:
            return self._topics[name]
        if self.failure is not None:
            raise self.failure
        self.created.append(name)
        return self.make(name, partitions)


class FakeProduce:
    """Appends are durable at once, unless `holds`; `fail_with` makes them fail."""

    def __init__(self) -> None:
        self.holds = False
        self.fail_with: HeadraceError | None = None
        self.held: list[tuple[Deferred[Appended], Appended]] = []

    def now_ms(self) -> int:
        return 1000

    def append_internal(self, partition: FakePartition, records: Sequence[NewRecord]) -> Deferred[Appended]:
        return self.append_marker(partition, build_batch(records, now_ms=1000))

    def append_marker(self, partition: FakePartition, batch: Buffer) -> Deferred[Appended]:
        if self.fail_with is not None:
            raise self.fail_with
        base = partition.end_offset
        partition.batches.append(bytes(batch))
        partition.end_offset += read_header(batch).last_offset_delta + 1
        appended = Appended(base, partition.end_offset, -1, False)
        deferred: Deferred[Appended] = Deferred()
        if self.holds:
            self.held.append((deferred, appended))
        else:
            deferred.resolve(appended)
        return deferred

    def flush(self, error: HeadraceError | None = None) -> None:
        """Everything held becomes durable, or fails."""
        held, self.held = self.held, []
        for deferred, appended in held:
            if error is None:
                deferred.resolve(appended)
            else:
                deferred.reject(error)


def replayed(topics: FakeTopics, name: str) -> list[ReplayedBatch]:
    """What a restart would read back."""
    found = []
    for partition in topics.get(name).partitions:
        offset = 0
        for batch in partition.batches:
            header = read_header(batch)._replace(base_offset=offset)
            records = list(read_batch_records(batch, header))
            found.append(ReplayedBatch(partition=partition.index, header=header, records=records))
            offset += header.last_offset_delta + 1
    return found
