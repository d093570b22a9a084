"""Calls of real clients beside writing and reading: offsets by time, ends, errors they raise, topics they list."""

import asyncio
import json
import shutil
import subprocess
import time
import warnings

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError as AioTooLarge
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka_clients import Sent, write_aiokafka, write_confluent, write_kafka_python
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import LATEST, RawKafka

with warnings.catch_warnings():
    # It loads its schemas through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
    from kafka.structs import TopicPartition as PythonPartition

BASE = 1_700_000_000_000
COUNT = 30
PATIENCE_S = 60.0


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    with RawKafka(node.kafka) as client:
        client.create_topic(name, 2)
    return name


@pytest.fixture
def filled(node: NodeProcess, topic: str) -> str:
    """Thirty records in partition 0, a second apart."""
    write_confluent(node.kafka, topic, [Sent(b"%d" % n, timestamp_ms=BASE + n * 1000) for n in range(COUNT)], "lz4")
    return topic


def test_confluent_finds_offsets_by_time(node: NodeProcess, filled: str) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "none"})
    assert consumer.get_watermark_offsets(TopicPartition(filled, 0), PATIENCE_S) == (0, COUNT)
    asked = [TopicPartition(filled, 0, BASE + 4500), TopicPartition(filled, 1, BASE)]
    assert [each.offset for each in consumer.offsets_for_times(asked, PATIENCE_S)] == [5, -1]
    assert consumer.offsets_for_times([TopicPartition(filled, 0, BASE - 1)], PATIENCE_S)[0].offset == 0
    assert consumer.offsets_for_times([TopicPartition(filled, 0, BASE + 10**9)], PATIENCE_S)[0].offset == -1
    consumer.close()


def test_kafka_python_finds_offsets_by_time(node: NodeProcess, filled: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=node.kafka)
    place, empty = PythonPartition(filled, 0), PythonPartition(filled, 1)
    found = consumer.offsets_for_times({place: BASE + 4500, empty: BASE})
    assert (found[place].offset, found[place].timestamp, found[empty]) == (5, BASE + 5000, None)
    assert consumer.beginning_offsets([place, empty]) == {place: 0, empty: 0}
    assert consumer.end_offsets([place, empty]) == {place: COUNT, empty: 0}
    assert consumer.partitions_for_topic(filled) == {0, 1}
    consumer.close()


async def test_aiokafka_finds_offsets_by_time(node: NodeProcess, filled: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=node.kafka)
    await consumer.start()
    try:
        place, empty = AioPartition(filled, 0), AioPartition(filled, 1)
        found = await consumer.offsets_for_times({place: BASE + 4500, empty: BASE})
        assert (found[place].offset, found[place].timestamp, found[empty]) == (5, BASE + 5000, None)
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: COUNT}
    finally:
        await consumer.stop()


@pytest.mark.requirement("R4.58")
@pytest.mark.trap(22)
def test_record_the_topic_does_not_take_is_raised_as_too_large(node: NodeProcess, topic: str) -> None:
    """The clients' own limits are above the topic's, so it is the broker who says no, once and for good."""
    big = b"x" * 2_000_000
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": node.kafka, "message.max.bytes": 4_000_000})
    producer.produce(topic, big, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]

    python = KafkaProducer(bootstrap_servers=node.kafka, max_request_size=4_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        python.send(topic, big).get(PATIENCE_S)
    python.close()

    async def send() -> None:
        aio = AIOKafkaProducer(bootstrap_servers=node.kafka, max_request_size=4_000_000)
        await aio.start()
        try:
            await aio.send_and_wait(topic, big)
        finally:
            await aio.stop()

    with pytest.raises(AioTooLarge):
        asyncio.run(send())
    with RawKafka(node.kafka) as client:
        assert client.offset_at(topic, 0, LATEST) == client.offset_at(topic, 1, LATEST) == 0


@pytest.mark.requirement("R4.51", "R4.52", "R4.53")
@pytest.mark.trap(23)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_through_every_client(node: NodeProcess, topic: str, acks: int | str) -> None:
    sent = [Sent(b"%d" % number) for number in range(50)]
    is_idempotent = acks == "all"
    write_confluent(node.kafka, topic, sent, "none", acks=acks, **{"enable.idempotence": is_idempotent})
    write_kafka_python(node.kafka, topic, sent, "none", acks=acks, enable_idempotence=is_idempotent)
    write_aiokafka(node.kafka, topic, sent, "none", acks=acks, enable_idempotence=is_idempotent)
    with RawKafka(node.kafka) as client:
        # Nobody was told when those without acknowledgement arrived.
        eventually(lambda: client.offset_at(topic, 0, LATEST) >= 150, PATIENCE_S, "not all records arrived")
        values = [record.value for record in client.read_all(topic, 0)]
    assert values == [record.value for record in sent] * 3


@pytest.mark.requirement("R4.55")
def test_topics_come_into_being_by_writing(node: NodeProcess, topic: str) -> None:
    names = {name: f"{topic}-{name}" for name in ("confluent", "python", "aio")}
    write_confluent(node.kafka, names["confluent"], [Sent(b"x")], "none")
    write_kafka_python(node.kafka, names["python"], [Sent(b"x")], "none")
    write_aiokafka(node.kafka, names["aio"], [Sent(b"x")], "none")
    listed = AdminClient({"bootstrap.servers": node.kafka}).list_topics(timeout=PATIENCE_S)
    assert set(names.values()) <= set(listed.topics)
    assert listed.cluster_id
    assert listed.controller_id in listed.brokers


@pytest.mark.trap(41)
def test_consumer_of_a_topic_that_is_not_there_says_so(node: NodeProcess, topic: str) -> None:
    missing = f"{topic}-missing"
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "none", "allow.auto.create.topics": False})
    listed = consumer.list_topics(missing, PATIENCE_S).topics[missing]
    assert listed.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException) as raised:
        consumer.get_watermark_offsets(TopicPartition(missing, 0), PATIENCE_S)
    assert raised.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    consumer.close()


def test_position_that_is_gone_is_reset_as_the_client_wishes(node: NodeProcess, filled: str) -> None:
    for reset, expected in (("earliest", 0), ("error", None)):
        settings = {"bootstrap.servers": node.kafka, "group.id": "none", "auto.offset.reset": reset}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(filled, 0, 5000)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if expected is None:
            assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        else:
            assert message.offset() == expected
        consumer.close()
    python = KafkaConsumer(bootstrap_servers=node.kafka, auto_offset_reset="none", enable_auto_commit=False)
    place = PythonPartition(filled, 0)
    python.assign([place])
    python.seek(place, 5000)
    with pytest.raises(OffsetOutOfRangeError):
        eventually(lambda: bool(python.poll(200)), PATIENCE_S, "nothing was raised")
    python.close()


@pytest.mark.trap(9)
def test_idle_consumer_does_not_spin(node: NodeProcess, topic: str) -> None:
    """`fetch.wait.max.ms` of a second: an idle client asks about once a second, not as fast as it can."""
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": "none", "fetch.wait.max.ms": 1000, "statistics.interval.ms": 1000}
        | {"stats_cb": lambda text: statistics.append(text)}
    )
    statistics: list[str] = []
    started = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while len(statistics) < 3:
        assert consumer.poll(0.1) is None
    consumer.close()
    seconds = time.monotonic() - started
    fetches = [
        sum(broker["req"].get("Fetch", 0) for broker in json.loads(text)["brokers"].values()) for text in statistics
    ]
    assert 0 < max(fetches) <= seconds + 5


@pytest.mark.requirement("X4.1")
@pytest.mark.trap(37, 47)
@pytest.mark.parametrize("version", [(0, 11), (1, 0), (2, 0), (2, 4), (3, 0), (4, 0)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_client_that_speaks_as_to_an_older_broker(node: NodeProcess, topic: str, version: tuple[int, int]) -> None:
    """kafka-python told how old the broker is: other versions of every request."""
    write_kafka_python(node.kafka, topic, [Sent(b"%d" % n) for n in range(10)], "lz4", api_version=version)
    consumer = KafkaConsumer(bootstrap_servers=node.kafka, api_version=version, enable_auto_commit=False)
    place = PythonPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    seen: list[bytes] = []

    def has_all() -> bool:
        seen.extend(row.value for rows in consumer.poll(200).values() for row in rows)
        return len(seen) >= 10

    eventually(has_all, PATIENCE_S, "not all was read")
    consumer.close()
    assert seen == [b"%d" % number for number in range(10)]


@pytest.mark.requirement("X4.1")
def test_kcat_writes_and_reads(node: NodeProcess, topic: str) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        subprocess.run(
            [kcat, "-b", node.kafka, "-t", topic, "-p", "0", "-P", "-K:", "-z", codec],
            input=f"key:{codec}\n".encode(),
            check=True,
            timeout=PATIENCE_S,
        )
    arguments = [kcat, "-b", node.kafka, "-t", topic, "-p", "0", "-C", "-e", "-q", "-f", "%o %k %s\\n"]
    found = subprocess.run(arguments, capture_output=True, check=True, timeout=PATIENCE_S).stdout.decode()
    assert found.split("\n")[:-1] == [
        f"{offset} key {codec}" for offset, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
    ]


def test_name_that_cannot_be_is_told_so(node: NodeProcess) -> None:
    listed = Producer({"bootstrap.servers": node.kafka}).list_topics("no such name", PATIENCE_S)
    assert listed.topics["no such name"].error.code() == KafkaError.TOPIC_EXCEPTION
