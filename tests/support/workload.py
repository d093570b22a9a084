"""Producers and consumers that go on through every crash of a node and note in a `History` what they were told.

Each runs in a thread of its own against a fixed address, and treats a lost connection as the ordinary thing it is here.
A producer that is not idempotent never repeats a value: it cannot know whether the first attempt landed.
"""

import contextlib
import itertools
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

import confluent_kafka
from tests.support.checker import History, Place
from tests.support.raw_kafka import Closed, Producer, RawKafka, batch_of

from headrace.records.record import read_records

RETRIABLE = {3, 5, 6, 7, 14, 15, 16, 56, 89}
"""Codes that say "later": an answer that promises nothing and breaks nothing."""
DOWN_PAUSE_S = 0.02
IN_FLIGHT = 3


class Actor(threading.Thread):
    """Calls `session` again and again until it is stopped; a session ends with its connection."""

    def __init__(self, name: str, address: str, places: list[Place], history: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.address = address
        self.places = places
        self.history = history
        self.random = random.Random(f"{seed}-{name}")
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                with contextlib.suppress(Closed, TimeoutError):
                    self.session()
                self.stopping.wait(DOWN_PAUSE_S)
        except BaseException:
            self.history.note_violation(f"{self.name} met what it did not expect: {traceback.format_exc()}")

    def session(self) -> None:
        raise NotImplementedError

    def values(self, numbers: "itertools.count[int]") -> list[bytes]:
        padding = b"." * self.random.choice((0, 0, 0, 30, 300, 3000))
        return [b"%s:%d%s" % (self.name.encode(), next(numbers), padding) for _ in range(self.random.choice((1, 1, 4)))]


class PlainProducer(Actor):
    """acks=all, one request at a time, nothing ever repeated."""

    numbers: "itertools.count[int]"

    def session(self) -> None:
        self.numbers = getattr(self, "numbers", itertools.count())
        with RawKafka(self.address, timeout=5.0) as client:
            while not self.stopping.is_set():
                topic, partition = self.random.choice(self.places)
                values = self.values(self.numbers)
                answer = client.produce(topic, partition, batch_of(values))
                if answer.error_code == 0:
                    self.history.note_acked(topic, partition, answer.base_offset, values)
                elif answer.error_code not in RETRIABLE:
                    self.history.note_violation(f"{self.name}: error {answer.error_code} {answer.error_message}")


class IdempotentProducer(Actor):
    """Several batches in flight, each repeated with its sequence number until it is acknowledged."""

    def __init__(self, name: str, address: str, place: Place, history: History, seed: int) -> None:
        super().__init__(name, address, [place], history, seed)
        self._numbers = itertools.count()
        self._producer: Producer | None = None
        self._sequence = 0
        self._unacked: deque[tuple[int, list[bytes]]] = deque()

    def session(self) -> None:
        with RawKafka(self.address, timeout=5.0) as client:
            if self._producer is None:
                self._producer = client.init_producer()
            in_flight = deque((self._send(client, *each), each) for each in list(self._unacked)[:IN_FLIGHT])
            while not self.stopping.is_set() or in_flight:
                while len(in_flight) < IN_FLIGHT and not self.stopping.is_set():
                    values = self.values(self._numbers)
                    batch = (self._sequence, values)
                    self._sequence += len(values)
                    self._unacked.append(batch)
                    in_flight.append((self._send(client, *batch), batch))
                correlation_id, (sequence, values) = in_flight.popleft()
                if not self._settle(client, correlation_id, sequence, values):
                    return

    def _send(self, client: RawKafka, sequence: int, values: list[bytes]) -> int:
        topic, partition = self.places[0]
        return client.send_produce(topic, partition, batch_of(values, producer=self._producer, sequence=sequence))

    def _settle(self, client: RawKafka, correlation_id: int, sequence: int, values: list[bytes]) -> bool:
        """False when the connection should be begun anew, so that everything unacknowledged is repeated in order."""
        topic, partition = self.places[0]
        answer = client.read_produced(correlation_id)
        if answer.error_code in RETRIABLE:
            return False
        if answer.error_code:
            self.history.note_violation(
                f"{self.name} sequence {sequence}: error {answer.error_code} {answer.error_message}"
            )
            self.stopping.set()
            return False
        assert self._unacked[0][0] == sequence
        self._unacked.popleft()
        self.history.note_acked(topic, partition, answer.base_offset, values)
        return True


class TailingConsumer(Actor):
    """Reads every partition from its start, again and again, and notes all it sees: readable means promised."""

    def session(self) -> None:
        offsets = dict.fromkeys(self.places, 0)
        with RawKafka(self.address, timeout=5.0) as client:
            while not self.stopping.is_set():
                for topic, partition in self.places:
                    offset = offsets[topic, partition]
                    found = client.fetch(topic, partition, offset, wait_ms=5)
                    if found.error_code:
                        if found.error_code not in RETRIABLE:
                            self.history.note_violation(f"{self.name} at {offset}: error {found.error_code}")
                        return
                    records = [each for each in read_records(found.records or b"") if each.offset >= offset]
                    self.history.note_read(topic, partition, records)
                    if records:
                        offsets[topic, partition] = records[-1].offset + 1


class LibrdkafkaProducer(Actor):
    """The client most people use, idempotent, left to reconnect and repeat as it sees fit."""

    def run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": 2000,
                "log_level": 0,
            },
            error_cb=self._failed,
        )
        numbers = itertools.count()
        while not self.stopping.is_set():
            topic, partition = self.random.choice(self.places)
            for value in self.values(numbers):
                with contextlib.suppress(BufferError):
                    producer.produce(topic, value=value, partition=partition, on_delivery=self._delivered)
            producer.poll(0.002)
        producer.purge()
        producer.flush(5.0)

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal():
            self.history.note_violation(f"{self.name}: {error}")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self.history.note_acked(topic, partition, offset, [message.value() or b""])


class Load:
    """All actors of one test, on every partition of one topic."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        history: History,
        *,
        librdkafka: bool = True,
        names: str = "",
        others: Sequence[Actor] = (),
    ) -> None:
        """`names` keeps the values of a second load apart from those of the first; `others` join in, on partitions of theirs too."""
        theirs = [place for each in others for place in each.places]
        self.places: list[Place] = list(dict.fromkeys([*((topic, index) for index in range(partitions)), *theirs]))
        seed = history.seed
        self.actors: list[Actor] = [
            PlainProducer(f"{names}plain", address, self.places, history, seed),
            *(
                IdempotentProducer(f"{names}idempotent{index}", address, place, history, seed)
                for index, place in enumerate(self.places[:2])
            ),
            TailingConsumer(f"{names}consumer", address, self.places, history, seed),
            *others,
        ]
        if librdkafka:
            self.actors.append(LibrdkafkaProducer(f"{names}librdkafka", address, self.places, history, seed))

    def __enter__(self) -> Self:
        for actor in self.actors:
            actor.start()
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            actor.stopping.set()
        for actor in self.actors:
            actor.join(20.0)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
