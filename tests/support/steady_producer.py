"""One idempotent producer that goes on through everything, and what must be true of the topic afterwards."""

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from tests.support.kafka_clients import read_confluent

FLUSH_S: Final = 60.0
QUICK: Final[Mapping[str, object]] = {
    # A client that notices a broker's silence in seconds. With its own defaults it waits for a minute, whatever the cluster does.
    "request.timeout.ms": 2_000,
    "socket.timeout.ms": 2_000,
    "socket.connection.setup.timeout.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # It would say of every connection that it was refused.
    "log_level": 0,
}


class SteadyProducer:
    """Numbers, one after the other, to all partitions of a topic in turn, from entering to leaving the context."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        pause_s: float = 0.005,
        options: Mapping[str, object] = QUICK,
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                **options,
            }
        )
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: dict[bytes, tuple[int, int | None]] = {}
        """Value to partition and offset. The client itself may conclude that a batch whose answer was lost is stored, from the answer to
        a later one: then it knows no offset."""
        self.refused: list[str] = []
        self._moments: list[list[float]] = [[] for _ in range(partitions)]
        """Of each partition: when it acknowledged something."""

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S) == 0, "records nobody has answered for"

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(self._pause_s):
            self._producer.produce(
                self._topic,
                b"%d" % number,
                partition=number % self._partitions,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        self._moments[partition].append(time.monotonic())
        self.acknowledged[value] = (partition, offset)

    @property
    def longest_gap_s(self) -> float:
        """Between two acknowledgements of one partition, from the first to the last there were."""
        return max(later - sooner for each in self._moments for sooner, later in pairwise(each))

    def gap_s(self, begin: float, end: float) -> float:
        """The same, of all gaps that were open at some time between these two; a partition still quiet at the end counts too."""
        gaps = [
            later - sooner
            for each in self._moments
            for sooner, later in pairwise([*each, end])
            if later > begin and sooner < end
        ]
        return max(gaps)

    def is_fresh(self, since: float) -> bool:
        """Whether every partition has acknowledged something after that."""
        return all(each and each[-1] > since for each in self._moments)

    def check(self, partitions: int) -> None:
        """Everything was acknowledged, is where it was said to be, once, and in order."""
        assert self.refused == []
        seen = read_confluent(self._bootstrap, self._topic, range(partitions), len(self.acknowledged))
        values = [each.record.value for each in seen]
        assert len(values) == len(set(values)) == len(self.acknowledged), "lost or doubled"
        for partition in range(partitions):
            found = [each for each in seen if each.record.partition == partition]
            numbers = [int(each.record.value or b"") for each in found]
            assert numbers == sorted(numbers), "out of order"
            for each in found:
                promised = self.acknowledged[each.record.value or b""]
                assert promised in ((partition, each.offset), (partition, None))
