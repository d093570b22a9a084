"""A consume-transform-produce loop in a process of its own, so that a test can kill -9 it at any moment.

    python -m tests.support.exactly_once_worker BOOTSTRAP IN OUT GROUP TRANSACTIONAL_ID

Each value is passed on with `!` behind it; the offsets read are part of the transaction that writes.
"""

import os
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH = 20


def main(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    # The node comes back within a second: a client that has backed off for ten would outlive its session meanwhile.
    # When its only broker is gone, librdkafka forgets all it knows and bootstraps anew; a request to a group's
    # coordinator can then wait for a broker it has forgotten, for ever.
    shared = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.max.ms": 500,
        "metadata.recovery.strategy": "none",
    }
    producer = Producer({**shared, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000})
    consumer = Consumer(
        {
            **shared,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([source])
    producer.init_transactions(30)
    while True:
        messages = [each for each in consumer.consume(BATCH, 0.5) if not each.error()]
        if messages:
            try:
                pass_on(producer, consumer, target, messages)
            except KafkaException as error:
                # A rebalance took the partitions away: what was read is read again by whoever has them now.
                producer.abort_transaction(10)
                print(error, flush=True)


def pass_on(producer: Producer, consumer: Consumer, target: str, messages: list) -> None:  # type: ignore[type-arg]
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, key=message.key(), value=message.value() + b"!")
    ends = {(each.topic(), each.partition()): each.offset() + 1 for each in messages}
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
    time.sleep(0.02)  # Leaves a window in which a kill hits an open transaction.
    producer.commit_transaction(10)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KafkaException as error:
        # Fenced, or cut off for too long: whoever watches over us starts us again. Clients that still wait for a
        # broker would hold up an orderly end.
        print(error, flush=True)
        os._exit(1)
