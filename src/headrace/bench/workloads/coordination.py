"""Coordination: offset commits, transactions, and a group that comes together. All through librdkafka.

The clients run in the benchmark's own process: they wait for the broker, not for a core.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.errors import LoadFailed
from headrace.bench.rivals import Broker
from headrace.bench.scale import Scale
from headrace.bench.topics import create_topics, delete_topics, fresh_name

T = TypeVar("T")

_PARTITIONS: Final = 8
_COMMITTERS: Final = 8
_COMMITS_WAITING_MAX: Final = 64
_RECORDS_PER_TRANSACTION: Final = 100
_RECORD_BYTES: Final = 100
_MEMBERS: Final = {"quick": 50}
_MEMBERS_FULL: Final = 200
_JOIN_SECONDS_MAX: Final = 120.0
_ANSWER_SECONDS_MAX: Final = 60.0


def _cases(scale: Scale) -> list[Case]:
    members = _MEMBERS.get(scale.name, _MEMBERS_FULL)
    return [
        Case(workload=WORKLOAD.name, name="offset commits", measure=_measure_commits),
        Case(workload=WORKLOAD.name, name="transactions of 100 records", measure=_measure_transactions),
        Case(
            workload=WORKLOAD.name,
            name=f"{members} members join",
            measure=partial(_measure_join, members=members),
        ),
    ]


WORKLOAD: Final = Workload(
    name="coordination",
    title="Groups and transactions",
    question="How fast are offsets committed, transactions completed, and groups brought together?",
    cases=_cases,
)


def _measure_commits(broker: Broker, scale: Scale) -> dict[str, float]:
    def load(topic: str) -> tuple[int, float, float]:
        committers = [_Committer(broker.bootstrap, topic, number) for number in range(_COMMITTERS)]

        def push() -> None:
            for each in committers:
                each.push()

        _run(push, scale.warm_up_seconds)
        meter = CpuMeter(broker)
        before = sum(each.done for each in committers)
        meter.begin()
        seconds = _run(push, scale.request_seconds)
        count = sum(each.done for each in committers) - before
        for each in committers:
            each.close()
        return count, seconds, meter.seconds_when_quiet()

    count, seconds, cpu_seconds = _on_topic(broker, load)
    return {"request_rate": count / seconds, "request_cpu": cpu_seconds / count * 1e6}


class _Committer:
    """One group that commits as fast as it is answered, with a bounded number under way."""

    def __init__(self, bootstrap: str, topic: str, number: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-{number}",
            "enable.auto.commit": False,
            "on_commit": self._committed,
        }
        self._consumer = Consumer(settings)
        self._topic = topic
        self._sent = 0
        self.done = 0
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)

    def push(self) -> None:
        while self._sent - self.done < _COMMITS_WAITING_MAX:
            self._sent += 1
            place = TopicPartition(self._topic, self._sent % _PARTITIONS, self._sent)
            self._consumer.commit(offsets=[place], asynchronous=True)
        self._consumer.poll(0)

    def _committed(self, error: object, partitions: list[Any]) -> None:  # Any: confluent-kafka ships no types
        if error is not None or any(each.error is not None for each in partitions):
            raise LoadFailed(f"a commit failed: {error or partitions}")
        self.done += 1

    def close(self) -> None:
        self._consumer.close()


def _measure_transactions(broker: Broker, scale: Scale) -> dict[str, float]:
    def load(topic: str) -> tuple[int, float, float]:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
        producer.init_transactions(_ANSWER_SECONDS_MAX)
        value = bytes(_RECORD_BYTES)
        done = 0

        def transact() -> None:
            nonlocal done
            producer.begin_transaction()
            for index in range(_RECORDS_PER_TRANSACTION):
                producer.produce(topic, value, partition=index % _PARTITIONS)
            producer.commit_transaction(_ANSWER_SECONDS_MAX)
            done += 1

        try:
            _run(transact, scale.warm_up_seconds)
            done = 0
            meter = CpuMeter(broker)
            meter.begin()
            seconds = _run(transact, scale.request_seconds)
        except KafkaException as error:
            raise LoadFailed(f"a transaction failed: {error}") from error
        return done, seconds, meter.seconds_when_quiet()

    count, seconds, cpu_seconds = _on_topic(broker, load)
    return {"transaction_rate": count / seconds, "request_cpu": cpu_seconds / count * 1e6}


def _measure_join(broker: Broker, scale: Scale, *, members: int) -> dict[str, float]:
    """From the first member's subscription until everybody has its one partition."""

    def load(topic: str) -> float:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        consumers = [Consumer(settings) for _ in range(members)]
        began = time.monotonic()
        for consumer in consumers:
            consumer.subscribe([topic])
        while not all(len(consumer.assignment()) == 1 for consumer in consumers):
            if time.monotonic() - began > _JOIN_SECONDS_MAX:
                raise LoadFailed(f"{members} members did not come together in {_JOIN_SECONDS_MAX:.0f} s")
            for consumer in consumers:
                consumer.poll(0)
        seconds = time.monotonic() - began
        for consumer in consumers:
            consumer.close()
        return seconds

    return {"join_seconds": _on_topic(broker, load, partitions=members)}


def _on_topic(broker: Broker, load: Callable[[str], T], *, partitions: int = _PARTITIONS) -> T:
    topic = fresh_name("coordination")
    create_topics(broker.bootstrap, [topic], partitions=partitions)
    try:
        settle(broker)
        return load(topic)
    finally:
        delete_topics(broker.bootstrap, [topic])


def _run(step: Callable[[], None], seconds: float) -> float:
    """Repeat `step` for about `seconds`; gives how long it really took."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        step()
    return elapsed
