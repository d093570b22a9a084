"""What /metrics says of a node that somebody uses."""

import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.node import NodeProcess, eventually


def scrape(node: NodeProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def produce(node: NodeProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": node.endpoints["kafka"]})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.requirement("X0.5")
def test_lag_is_what_a_group_has_yet_to_read(node: NodeProcess) -> None:
    produce(node, "lagging", [b"a", b"b", b"c"])
    consumer = Consumer({"bootstrap.servers": node.endpoints["kafka"], "group.id": "slow"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 1)], asynchronous=False)
    lag = 'consumer_lag{group="slow",partition="0",topic="lagging"}'
    assert scrape(node)[lag] == 2
    produce(node, "lagging", [b"d"])
    assert scrape(node)[lag] == 3
    consumer.close()


def test_records_and_bytes_are_counted_in_and_out(node: NodeProcess) -> None:
    before = scrape(node)
    produce(node, "counted", [b"x" * 100] * 10)
    consumer = Consumer({"bootstrap.servers": node.endpoints["kafka"], "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("counted", 0, 0)])
    seen = 0
    while seen < 10:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        seen += 1
    consumer.close()

    def grown(name: str) -> float:
        return scrape(node)[name] - before[name]

    assert grown("messages_produced_total") == 10
    assert grown("bytes_in_total") > 1000
    eventually(lambda: grown("messages_fetched_total") >= 10, 60, "fetched records were not counted")
    assert grown("bytes_out_total") > 1000
    assert grown("headrace_topics") == 1
