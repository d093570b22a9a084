"""Consumers of one group through confluent-kafka, polled by the test that owns them."""

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Producer
from tests.support.node import NodeProcess, eventually

QUICK_GROUPS = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 200}
"""Settings of a node whose groups settle within a second. Sessions are long: nobody leaves them without a word."""
PATIENCE_S = 60.0

PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REBALANCE_IN_PROGRESS)
"""The node is away, or the group changed its kind while this one was joining: librdkafka says so, and tries again."""


class GroupMember:
    """One consumer, of the group that reads `topic`."""

    def __init__(self, node: NodeProcess, topic: str, protocol: str, **config: object) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": node.kafka,
            "group.id": f"group-of-{topic}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 200}
        settings |= config
        self.consumer = Consumer(settings)
        self.seen: list[bytes] = []
        self.revocations = 0
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            error = message.error()
            assert error is None or error.retriable() or error.code() in PASSING, error
            if error is None:
                self.seen.append(message.value())

    def _revoked(self, *_: object) -> None:
        self.revocations += 1

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def poll_until(members: list[GroupMember], condition: Callable[[], bool], what: str) -> None:
    def is_reached() -> bool:
        for member in members:
            member.poll()
        return condition()

    eventually(is_reached, PATIENCE_S, what)


def are_shared_evenly(members: list[GroupMember], partition_count: int = 4) -> bool:
    """Every partition has one reader, and no reader has two more than another."""
    shares = [member.partitions for member in members]
    sizes = [len(share) for share in shares]
    return sum(sizes) == partition_count == len(set().union(*shares)) and max(sizes) - min(sizes) <= 1


def produce(node: NodeProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 5})
    for value in values:
        producer.produce(topic, key=value, value=value)
    assert producer.flush(PATIENCE_S) == 0
