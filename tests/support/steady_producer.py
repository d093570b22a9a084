"""One idempotent producer that goes on through everything, and what must be true of the topic afterwards."""

import threading
import time

from confluent_kafka import KafkaError, Message, Producer
from tests.support.kafka_clients import read_confluent

FLUSH_S = 60.0


class SteadyProducer:
    """Numbers, one after the other, to all partitions of a topic, from entering to leaving the context."""

    def __init__(self, bootstrap: str, topic: str, *, pause_s: float = 0.005) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 120_000}
        )
        self._bootstrap = bootstrap
        self._topic = topic
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        """Value to partition and offset."""
        self.refused: list[str] = []
        self.longest_gap_s = 0.0
        """Between two acknowledgements."""
        self._last = time.monotonic()

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
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        now = time.monotonic()
        self.longest_gap_s, self._last = max(self.longest_gap_s, now - self._last), now
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.acknowledged[value] = (partition, offset)

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
                assert self.acknowledged[each.record.value or b""] == (partition, each.offset)
