"""Producers and consumers at once on a node whose memory is too small for what they write: every record once, in
order, at the offset its producer was told, from memory, disk and object storage alike."""

import random
import threading
from collections.abc import Iterator

import pytest
from tests.support.kafka_client import Wanted, fetch
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.records.record import read_records

PARTITIONS = 3
TOPIC = "load"
SIZES = [0, 10, 5_000, 60_000]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"tier.upload.interval.ms": 100, "cache.write.size.bytes": 1 << 20}
    with running_node(tmp_path_factory.mktemp("load") / "data", settings) as started:
        yield started


class Load:
    """Threads that write and read, and what they saw; `seed` makes their choices."""

    def __init__(self, node: NodeProcess, seed: int) -> None:
        self._node = node
        self._seed = seed
        self._is_over = threading.Event()
        self.told: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.read: list[dict[int, bytes | None]] = [{} for _ in range(PARTITIONS)]
        self.failures: list[str] = []

    def run(self) -> None:
        writers = [threading.Thread(target=self._write, args=(number,)) for number in range(3)]
        readers = [threading.Thread(target=self._read, args=(index,)) for index in range(PARTITIONS)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in writers:
            thread.join()
        self._is_over.set()
        for thread in readers:
            thread.join()

    def _write(self, number: int) -> None:
        chance = random.Random(self._seed * 100 + number)
        with RawKafka(self._node.kafka) as client:
            for turn in range(40):
                sent = []
                for place in range(chance.randint(1, 6)):
                    partition = chance.randrange(PARTITIONS)
                    mark = b"%d %d %d " % (number, turn, place)
                    values = [mark + bytes(chance.choice(SIZES)) for _ in range(chance.randint(1, 4))]
                    sent.append((partition, values, client.send_produce(TOPIC, partition, batch_of(values))))
                for partition, values, correlation_id in sent:
                    row = client.read_produced(correlation_id)
                    if row.error_code:
                        self.failures.append(f"produce to {partition}: {row.error_code}")
                    for index, value in enumerate(values):
                        self.told[partition][row.base_offset + index] = value

    def _read(self, partition: int) -> None:
        chance = random.Random(self._seed * 100 + 50 + partition)
        offset = 0
        with RawKafka(self._node.kafka) as client:
            while True:
                wanted = Wanted(TOPIC, offset, partition, chance.choice([1, 1000, 100_000, 1 << 20]))
                answer = fetch(client, wanted, wait_ms=100, max_bytes=chance.choice([1, 50_000, 1 << 21]))
                row = answer.responses[0].partitions[0]
                records = [each for each in read_records(row.records or b"") if each.offset >= offset]
                if row.error_code or [each.offset for each in records] != [*range(offset, offset + len(records))]:
                    self.failures.append(f"fetch of {partition} at {offset}: {row.error_code}, {len(records)} records")
                    return
                self.read[partition] |= {each.offset: each.value for each in records}
                offset += len(records)
                if not records and self._is_over.is_set() and offset >= row.high_watermark:
                    return


@pytest.mark.requirement("R3.1", "R3.49", "R3.51", "R3.52", "R4.39", "R4.57")
@pytest.mark.trap(10, 11, 24)
def test_every_record_is_read_once_at_the_offset_its_producer_was_told(node: NodeProcess, client: RawKafka) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    load = Load(node, seed=20)
    load.run()
    assert load.failures == []
    assert load.read == load.told
    assert all(sorted(each) == list(range(len(each))) for each in load.told)
    # And again from anywhere, most of it from object storage now.
    chance = random.Random(1)
    for _ in range(60):
        partition = chance.randrange(PARTITIONS)
        offset = chance.randrange(len(load.told[partition]))
        row = client.fetch(TOPIC, partition, offset, max_bytes=chance.choice([1, 1000, 200_000]), wait_ms=100)
        found = {each.offset: each.value for each in read_records(row.records or b"")}
        assert offset in found
        assert all(load.told[partition][each] == value for each, value in found.items())
