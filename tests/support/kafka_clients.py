"""Writing and reading through the Kafka clients people use, each behind the same two functions."""

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Message, Producer, TopicPartition

with warnings.catch_warnings():
    # It loads its schemas through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer as KafkaConsumer
    from kafka import KafkaProducer as KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as _KafkaTokenProvider
    from kafka.structs import TopicPartition as _KafkaPartition

PythonPartition = _KafkaPartition
KafkaTokenProvider = _KafkaTokenProvider

SECONDS_MAX = 60.0


class Sent(msgspec.Struct, frozen=True):
    """One record, as every client can say it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


class Seen(msgspec.Struct, frozen=True):
    offset: int
    record: Sent


# confluent-kafka: librdkafka


def write_confluent(address: str, topic: str, records: Sequence[Sent], codec: str, **options: object) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5, **options})
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures


def read_confluent(address: str, topic: str, partitions: Sequence[int], count: int, offset: int = 0) -> list[Seen]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, offset) for partition in partitions])
    messages: list[Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count, 0.1)
    consumer.close()
    assert not (errors := {str(error) for message in messages if (error := message.error()) is not None}), errors
    return [
        Seen(
            message.offset(),
            Sent(
                message.value(),
                message.key(),
                tuple(message.headers() or ()),
                message.timestamp()[1],
                message.partition(),
            ),
        )
        for message in messages
    ]


# kafka-python


def write_kafka_python(address: str, topic: str, records: Sequence[Sent], codec: str, **options: object) -> None:
    producer = KafkaProducer(
        bootstrap_servers=address, compression_type=None if codec == "none" else codec, linger_ms=5, **options
    )
    sent = [
        producer.send(
            topic,
            record.value,
            record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    producer.flush(SECONDS_MAX)
    for each in sent:
        each.get(SECONDS_MAX)
    producer.close()


def read_kafka_python(address: str, topic: str, partitions: Sequence[int], count: int, offset: int = 0) -> list[Seen]:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    places = [PythonPartition(topic, partition) for partition in partitions]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, offset)
    seen: list[Seen] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(seen) < count and time.monotonic() < deadline:
        for rows in consumer.poll(100).values():
            seen += [_seen(row) for row in rows]
    consumer.close()
    return seen


# aiokafka


def write_aiokafka(address: str, topic: str, records: Sequence[Sent], codec: str, **options: object) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec, linger_ms=5, **options
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), SECONDS_MAX)
        finally:
            await producer.stop()

    asyncio.run(write())


def read_aiokafka(address: str, topic: str, partitions: Sequence[int], count: int, offset: int = 0) -> list[Seen]:
    async def read() -> list[Seen]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        await consumer.start()
        try:
            places = [AioPartition(topic, partition) for partition in partitions]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, offset)
            seen: list[Seen] = []
            deadline = time.monotonic() + SECONDS_MAX
            while len(seen) < count and time.monotonic() < deadline:
                for rows in (await consumer.getmany(timeout_ms=100)).values():
                    seen += [_seen(row) for row in rows]
            return seen
        finally:
            await consumer.stop()

    return asyncio.run(read())


def _seen(row: object) -> Seen:
    # Any: kafka-python and aiokafka have no types, and the same attribute names.
    found: Mapping[str, object] = {
        name: getattr(row, name) for name in ("offset", "value", "key", "timestamp", "partition")
    }
    headers = tuple((name, value) for name, value in getattr(row, "headers", ()))
    record = Sent(found["value"], found["key"], headers, found["timestamp"], found["partition"])  # type: ignore[arg-type]
    return Seen(found["offset"], record)  # type: ignore[arg-type]


WRITERS: Mapping[str, Callable[..., None]] = {
    "confluent": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
}
READERS: Mapping[str, Callable[..., list[Seen]]] = {
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
