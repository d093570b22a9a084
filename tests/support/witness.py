"""A member of a consumer group that reads along, and holds what it sees against what it saw before."""

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tests.support.steady_producer import QUICK


class Witness:
    """Reads a topic from entering to leaving the context, and commits as it goes.

    Whatever it saw at an offset is there for good. A group may be told of a record twice, but goes back behind no commit that was
    acknowledged, and over no record.
    """

    def __init__(self, bootstrap: str, topic: str, *, options: Mapping[str, object] = QUICK) -> None:
        quick = {
            key: value
            for key, value in options.items()
            if not key.startswith("retry.backoff") and key != "request.timeout.ms"
        }
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"witness-of-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                **quick,
            }
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: dict[int, dict[int, bytes]] = {}
        self._next: dict[int, int] = {}
        """Where each partition goes on, as far as was read."""
        self._committed: dict[int, int] = {}
        self._is_begun: set[int] = set()
        """Partitions of which something was read since they were assigned."""
        self.violations: list[str] = []
        self.errors: list[str] = []

    def __enter__(self) -> "Witness":
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def await_all(self, count: int, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while self.count < count and time.monotonic() < deadline:
            time.sleep(0.1)
        assert self.count >= count, f"the group has seen {self.count} of {count} records; {self.errors[-3:]}"

    @property
    def count(self) -> int:
        return sum(map(len, list(self._seen.values())))

    def check(self, acknowledged: Mapping[bytes, tuple[int, int | None]]) -> None:
        """Everything acknowledged was seen where it was said to be, and nothing else."""
        assert self.violations == []
        found = {value: (partition, offset) for partition, each in self._seen.items() for offset, value in each.items()}
        assert found.keys() == acknowledged.keys()
        for value, (partition, offset) in acknowledged.items():
            assert found[value] == (partition, found[value][1] if offset is None else offset)

    def _run(self) -> None:
        last_commit = time.monotonic()
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                self._note(message)
            if time.monotonic() - last_commit > 0.5:
                self._commit()
                last_commit = time.monotonic()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_begun.difference_update(each.partition for each in partitions)

    def _note(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self.errors.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        if partition not in self._is_begun:
            self._is_begun.add(partition)
            if offset < self._committed.get(partition, 0):
                self.violations.append(
                    f"partition {partition}: begun at {offset}, though {self._committed[partition]} was committed"
                )
        known = self._seen.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self.violations.append(f"partition {partition} offset {offset}: {value!r}, and before it was {known!r}")
        self._next[partition] = max(self._next.get(partition, 0), offset + 1)

    def _commit(self) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in self._next.items()]
        if not wanted:
            return
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            code = error.args[0]
            assert isinstance(code, KafkaError)
            self.errors.append(str(code))
            return
        for each in done or ():
            if each.error is None:
                self._committed[each.partition] = max(self._committed.get(each.partition, 0), each.offset)
