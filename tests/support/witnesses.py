"""Who looks at one promise of the log each, for as long as the log moves its records about, and through every crash.

Each pair shares a ledger: one actor changes a topic of its own and notes what it was told, the other asks the node and
compares. What a crash leaves in doubt is allowed either way, and nothing else is.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition
from tests.support.checker import History, Place
from tests.support.kafka_client import delete_topic, list_offsets
from tests.support.raw_groups import add_partitions, commit, committed, end, init_transactions
from tests.support.raw_kafka import EARLIEST, LATEST, Producer, RawKafka, batch_of
from tests.support.workload import RETRIABLE, Actor

from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_records
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC: Final = 3
TOPIC_EXISTS: Final = 36
CONCURRENT_TRANSACTIONS: Final = 51
MAX_TIMESTAMP: Final = -3
TOPIC_RESOURCE: Final = 2
TIMEOUT_S: Final = 60.0
"""Also so that what was given up does not land behind what came after it."""
SCAN_S_MAX: Final = 120.0
"""A consumer that has not come to the end by then is stuck."""
TOMBSTONE_S: Final = 15.0
"""How long compaction keeps tombstones for readers to see."""

Ledger = TypeVar("Ledger")


class Witness(Actor):
    """Does one thing after the other on one connection, with a little time for others in between."""

    pause_s = 0.01

    def __init__(self, address: str, topic: str, history: History, name: str = "") -> None:
        super().__init__(name or type(self).__name__, address, [(topic, 0)], history, history.seed)
        self.topic = topic

    def session(self) -> None:
        with RawKafka(self.address, timeout=TIMEOUT_S) as client:
            while not self.stopping.wait(self.pause_s):
                self.act(client)

    def act(self, client: RawKafka) -> None:
        raise NotImplementedError

    def violated(self, what: str) -> None:
        self.history.note_violation(f"{self.name} of {self.topic}: {what}")

    def is_refused(self, code: int, *allowed: int) -> bool:
        """Whether nothing was done; codes that a node may not answer with are noted."""
        if code and code not in RETRIABLE and code not in allowed:
            self.violated(f"error {code}")
        return code != 0

    def padding(self) -> bytes:
        return b"." * self.random.choice((0, 30, 300, 3000))


class LedgerWitness(Witness, Generic[Ledger]):
    """One of those that share a ledger."""

    def __init__(self, address: str, topic: str, history: History, ledger: Ledger, name: str = "") -> None:
        super().__init__(address, topic, history, name)
        self._ledger = ledger


# -- load ------------------------------------------------------------------------------------------------------------


class Filler(Witness):
    """Large records that nobody keeps: the ring goes round, memory is short, retention has work."""

    pause_s = 0.1

    def act(self, client: RawKafka) -> None:
        self.is_refused(client.produce(self.topic, 0, batch_of([bytes(100_000)])).error_code)


class Toggler(Witness):
    """A topic whose records must be in object storage, and need not be, and must be."""

    pause_s = 0.3

    def act(self, client: RawKafka) -> None:
        change = AlterableConfig("durability", 0, self.random.choice(("wal", "object")))
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, self.topic, [change])])
        answer = client.call(request, 1, IncrementalAlterConfigsResponse)
        self.is_refused(answer.responses[0].error_code)


# -- order -----------------------------------------------------------------------------------------------------------


class Rescanner(Witness):
    """A consumer of librdkafka that reads everything from the beginning, again and again, without a gap."""

    def __init__(self, address: str, places: list[Place], history: History, name: str) -> None:
        super().__init__(address, places[0][0], history, name)
        self.places = places
        self.scans = 0

    def session(self) -> None:
        consumer = _consumer(self.address)
        try:
            while not self.stopping.is_set():
                self._scan(consumer)
        finally:
            consumer.close()

    def _scan(self, consumer: confluent_kafka.Consumer) -> None:
        following = dict.fromkeys(self.places, 0)
        for message in _messages(consumer, following, self):
            topic, partition, offset = _place_of(message)
            if offset != following[topic, partition]:
                self.violated(f"{topic}-{partition} went from {following[topic, partition]} to {offset}")
            following[topic, partition] = offset + 1
            self.history.note_read(topic, partition, [Record(offset, 0, None, message.value())])
        self.scans += 1


def _consumer(address: str, **settings: object) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "witness",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 20,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **settings,
        }
    )


def _messages(
    consumer: confluent_kafka.Consumer,
    starts: Mapping[Place, int],
    witness: Witness,
    ends: dict[Place, int] | None = None,
) -> Iterator[confluent_kafka.Message]:
    """What there is from `starts` to the end, which goes into `ends`."""
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    reached: dict[Place, int] = {} if ends is None else ends
    moved = time.monotonic()
    while len(reached) < len(starts) and not witness.stopping.is_set():
        message = consumer.poll(0.5)
        if message is None or (message.error() and message.error().code() != KafkaError._PARTITION_EOF):
            if time.monotonic() - moved > SCAN_S_MAX:
                witness.violated(f"a consumer got nothing for {SCAN_S_MAX} s, its ends are {reached}")
                return
            continue
        moved = time.monotonic()
        topic, partition, offset = _place_of(message)
        if message.error():
            reached[topic, partition] = offset
        elif (topic, partition) not in reached:
            yield message


def _place_of(message: confluent_kafka.Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


# -- time ------------------------------------------------------------------------------------------------------------


class Timeline:
    """Offset of every acknowledged record by its time. Times only rise."""

    def __init__(self) -> None:
        self.clock_ms = time.time_ns() // 1_000_000 - 1_800_000
        self.offsets: dict[int, int] = {}
        self.last = (-1, -1)
        """Time and offset of the newest acknowledged record."""


class TimedWriter(LedgerWitness[Timeline]):
    def act(self, client: RawKafka) -> None:
        ledger = self._ledger
        times = [ledger.clock_ms + number for number in range(1, self.random.choice((2, 2, 5)))]
        ledger.clock_ms = times[-1]
        records = [NewRecord(value=b"%d" % each + self.padding(), timestamp_ms=each) for each in times]
        answer = client.produce(self.topic, 0, build_batch(records, now_ms=times[0]))
        if not self.is_refused(answer.error_code):
            ledger.offsets.update(zip(times, itertools.count(answer.base_offset), strict=False))
            ledger.last = (times[-1], ledger.offsets[times[-1]])


class TimeSeeker(LedgerWitness[Timeline]):
    """Finds every acknowledged record by its time, wherever it is just then."""

    def act(self, client: RawKafka) -> None:
        known = list(self._ledger.offsets.copy())
        if not known:
            return
        wanted = self.random.choice(known[-50:] if self.random.random() < 0.5 else known)
        found = list_offsets(client, self.topic, wanted)
        if not self.is_refused(found.error_code) and found.offset != self._ledger.offsets[wanted]:
            self.violated(f"time {wanted} is at {found.offset}, not {self._ledger.offsets[wanted]}")
        newest_ms, newest_offset = self._ledger.last
        found = list_offsets(client, self.topic, MAX_TIMESTAMP)
        if not self.is_refused(found.error_code) and (found.offset < newest_offset or found.timestamp < newest_ms):
            self.violated(f"the newest is {found.offset} at {found.timestamp}, after {newest_offset} at {newest_ms}")


# -- keys ------------------------------------------------------------------------------------------------------------


class LastValues:
    """The newest acknowledged change of each key; changes are numbered, every fifth deletes the key."""

    def __init__(self) -> None:
        self.acked: dict[bytes, int] = {}
        self.may_be_deleted: set[bytes] = set()
        """By a change that was never answered."""
        self.numbers = itertools.count(1)


def _deletes(number: int) -> bool:
    return number % 5 == 0


class KeyedWriter(LedgerWitness[LastValues]):
    def act(self, client: RawKafka) -> None:
        changes = {
            b"key-%d" % self.random.randrange(40): next(self._ledger.numbers) for _ in range(self.random.choice((1, 4)))
        }
        records = [
            NewRecord(key=key, value=None if _deletes(number) else b"%d" % number + self.padding())
            for key, number in changes.items()
        ]
        self._ledger.may_be_deleted.update(key for key, number in changes.items() if _deletes(number))
        answer = client.produce(self.topic, 0, build_batch(records, now_ms=time.time_ns() // 1_000_000))
        if not self.is_refused(answer.error_code):
            self._ledger.acked.update(changes)
            self._ledger.may_be_deleted.difference_update(changes)


class KeyedReader(LedgerWitness[LastValues]):
    """Reads the compacted topic to its end: no key may show an older value than was last acknowledged."""

    pause_s = 0.1

    def act(self, client: RawKafka) -> None:
        may_be_deleted = self._ledger.may_be_deleted.copy()
        acked = self._ledger.acked.copy()
        began = time.monotonic()
        found = self._last_values(client)
        if found is None or time.monotonic() - began > TOMBSTONE_S:
            return
        for key, number in acked.items():
            value = found.get(key)
            if key not in found and not _deletes(number) and key not in may_be_deleted:
                self.violated(f"{key!r} is gone, its value was {number}")
            if value is not None and value < number:
                self.violated(f"{key!r} has value {value}, after {number} was acknowledged")

    def _last_values(self, client: RawKafka) -> dict[bytes, int | None] | None:
        """None where a key was deleted; None for all when the node would not answer.

        Up to where the log ends when nothing is left to read: what was compacted away meanwhile has a successor up there.
        """
        values: dict[bytes, int | None] = {}
        offset = client.offset_at(self.topic, 0, EARLIEST)
        while offset < client.offset_at(self.topic, 0, LATEST):
            page = client.fetch(self.topic, 0, offset, max_bytes=1 << 18, wait_ms=50)
            if self.is_refused(page.error_code):
                return None
            records = [each for each in read_records(page.records or b"") if each.offset >= offset]
            if not records:
                break  # Tombstones at the end may have gone.
            for record in records:
                assert record.key is not None
                values[record.key] = None if record.value is None else int(record.value.rstrip(b"."))
            offset = records[-1].offset + 1
        return values


# -- log starts ------------------------------------------------------------------------------------------------------


class Erased:
    """What a topic that loses its beginning must have: values from somewhere in `floor..ceiling` on."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.end = 0
        self.floor = 0
        """Below this nothing may be served any more."""
        self.ceiling = 0
        """From here on nothing may be missing."""
        self.numbers = itertools.count()


class Eraser(LedgerWitness[Erased]):
    """Appends, and now and then deletes records from the beginning."""

    def act(self, client: RawKafka) -> None:
        ledger = self._ledger
        if ledger.end > ledger.ceiling + 20 and self.random.random() < 0.05:
            ledger.ceiling = self.random.randrange(ledger.ceiling + 1, ledger.end)
            code, start = delete_records(client, self.topic, ledger.ceiling)
            if not self.is_refused(code):
                ledger.floor = max(ledger.floor, start)
                if start != ledger.ceiling:
                    self.violated(f"deleted up to {ledger.ceiling}, and the log starts at {start}")
            return
        values = [b"%d" % next(ledger.numbers) + self.padding() for _ in range(self.random.choice((1, 1, 4)))]
        answer = client.produce(self.topic, 0, batch_of(values))
        if not self.is_refused(answer.error_code):
            ledger.values.update(zip(itertools.count(answer.base_offset), values, strict=False))
            ledger.end = answer.base_offset + len(values)


class ErasedReader(LedgerWitness[Erased]):
    """Reads here and there, also where the records have just been deleted."""

    pause_s = 0.002

    def act(self, client: RawKafka) -> None:
        ledger = self._ledger
        floor, end_offset = ledger.floor, ledger.end
        if not end_offset:
            return
        self._check_start(client)
        offset = self.random.choice((floor, max(0, floor - 1), ledger.ceiling, self.random.randrange(end_offset)))
        known = ledger.values.copy()
        found = client.fetch(self.topic, 0, offset, max_bytes=self.random.choice((1, 10_000, 1 << 20)))
        if found.error_code == OUT_OF_RANGE:
            if offset >= ledger.ceiling and offset <= end_offset:
                self.violated(f"{offset} is out of range, between {ledger.ceiling} and {end_offset}")
            return
        if self.is_refused(found.error_code):
            return
        records = [each for each in read_records(found.records or b"") if each.offset >= offset]
        if offset < floor:
            self.violated(f"{len(records)} records at {offset}, though the log starts at {floor}")
        if not records and offset >= ledger.ceiling and offset < end_offset:
            self.violated(f"nothing at {offset}, between {ledger.ceiling} and {end_offset}")
        for expected, record in zip(itertools.count(offset), records, strict=False):
            if record.offset != expected and expected >= ledger.ceiling:
                self.violated(f"{record.offset} follows where {expected} is due")
                break
            if record.offset in known and known[record.offset] != record.value:
                self.violated(f"{record.value!r:.40} at {record.offset}, not {known[record.offset]!r:.40}")

    def _check_start(self, client: RawKafka) -> None:
        floor = self._ledger.floor
        found = list_offsets(client, self.topic, EARLIEST)
        if not self.is_refused(found.error_code) and not floor <= found.offset <= self._ledger.ceiling:
            self.violated(f"the log starts at {found.offset}, outside {floor}..{self._ledger.ceiling}")


def delete_records(client: RawKafka, topic: str, before: int) -> tuple[int, int]:
    """Error code and the new log start."""
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, before)])
    answer = client.call(DeleteRecordsRequest([wanted], 10_000), 2, DeleteRecordsResponse)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


# -- topics ----------------------------------------------------------------------------------------------------------


class Generations:
    """Topics of one name: the one that is there, or may be, and how many records of it are acknowledged."""

    def __init__(self) -> None:
        self.current = 0
        self.acked = 0


class Recreator(LedgerWitness[Generations]):
    """Makes a topic, fills it, reads it, deletes it and makes it again under the same name."""

    pause_s = 0.0

    def act(self, client: RawKafka) -> None:
        ledger = self._ledger
        if delete_topic(client, self.topic) not in (0, UNKNOWN_TOPIC):
            return
        ledger.acked = 0
        ledger.current += 1
        client.create_topic(self.topic)
        for _ in range(self.random.choice((1, 10, 100))):
            if self.stopping.wait(self.random.choice((0.0, 0.001, 0.02))):
                return
            values = [
                b"%d:%d" % (ledger.current, ledger.acked + number) + self.padding()
                for number in range(self.random.choice((1, 4)))
            ]
            answer = client.produce(self.topic, 0, batch_of(values))
            if self.is_refused(answer.error_code):
                return
            if answer.base_offset != ledger.acked:
                self.violated(f"generation {ledger.current}: {answer.base_offset} given out after {ledger.acked}")
            ledger.acked += len(values)
        found = [_generation(record) for record in client.read_all(self.topic, 0)]
        if found != [(ledger.current, number) for number in range(ledger.acked)]:
            self.violated(f"generation {ledger.current}: {ledger.acked} written, {len(found)} there: {found[:3]}..")


class RecreatedReader(LedgerWitness[Generations]):
    """Reads the topic by its name, whichever it is just then: never records of two, nor of one that is gone."""

    pause_s = 0.002

    def act(self, client: RawKafka) -> None:
        before, acked = self._ledger.current, self._ledger.acked
        offset = self.random.randrange(acked) if acked else 0
        found = client.fetch(self.topic, 0, offset)
        if self.is_refused(found.error_code, OUT_OF_RANGE):
            return
        after = self._ledger.current
        records = [each for each in read_records(found.records or b"") if each.offset >= offset]
        for expected, record in zip(itertools.count(offset), records, strict=False):
            generation, number = _generation(record)
            if not before <= generation <= after or (record.offset, number) != (expected, expected):
                self.violated(f"{generation}:{number} at {record.offset}, between generations {before} and {after}")
                return


def _generation(record: Record) -> tuple[int, int]:
    generation, _, number = (record.value or b"").rstrip(b".").partition(b":")
    return int(generation), int(number)


# -- transactions ----------------------------------------------------------------------------------------------------


class Outcomes:
    """Values of committed transactions by their offset; those of aborted ones say so themselves."""

    def __init__(self) -> None:
        self.committed: dict[int, bytes] = {}
        self.erased_below = 0
        self.numbers = itertools.count()


class Transactor(LedgerWitness[Outcomes]):
    """Decides first, writes then, and keeps its word: what is to be aborted is never committed."""

    def session(self) -> None:
        with RawKafka(self.address, timeout=TIMEOUT_S) as client:
            found = init_transactions(client, self.name)
            if self.is_refused(found.error_code, CONCURRENT_TRANSACTIONS):
                return
            producer = Producer(found.producer_id, found.producer_epoch)
            sequence = 0
            while not self.stopping.wait(self.pause_s):
                written = self._run(client, producer, sequence)
                if written is None:
                    return
                sequence += written
                if self.random.random() < 0.03:
                    self.erase(client)

    def _run(self, client: RawKafka, producer: Producer, sequence: int) -> int | None:
        """One transaction; gives how many records it wrote, None when the producer should begin anew."""
        is_commit = self.random.random() < 0.5
        if not self._added(client, producer):
            return None
        written: dict[int, bytes] = {}
        for _ in range(self.random.choice((1, 3))):
            word = b"commit" if is_commit else b"abort"
            value = b"%s:%d:" % (word, next(self._ledger.numbers)) + self.padding()
            batch = build_batch(
                [NewRecord(key=self.key_of(value), value=value)],
                now_ms=time.time_ns() // 1_000_000,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence + len(written),
                is_transactional=True,
            )
            answer = client.produce(self.topic, 0, batch)
            if self.is_refused(answer.error_code):
                return None
            written[answer.base_offset] = value
        if self.is_refused(end(client, self.name, producer, is_commit=is_commit), CONCURRENT_TRANSACTIONS):
            return None
        if is_commit:
            self._ledger.committed.update(written)
        return len(written)

    def _added(self, client: RawKafka, producer: Producer) -> bool:
        while not self.stopping.is_set():
            (code,) = add_partitions(client, self.name, producer, self.topic, [0])
            if code != CONCURRENT_TRANSACTIONS:
                return not self.is_refused(code)
            self.stopping.wait(0.01)
        return False

    def key_of(self, value: bytes) -> bytes | None:
        return None

    def erase(self, client: RawKafka) -> None:
        """The beginning of the log goes; what it knows of aborted transactions there goes with it."""
        known = list(self._ledger.committed.copy())
        if len(known) > 20:
            self._ledger.erased_below = max(self._ledger.erased_below, self.random.choice(known[: len(known) // 2]))
            self.is_refused(delete_records(client, self.topic, self._ledger.erased_below)[0])


class CommittedReader(LedgerWitness[Outcomes]):
    """librdkafka with `read_committed`: everything that was committed, nothing that was aborted."""

    def session(self) -> None:
        consumer = _consumer(self.address, **{"isolation.level": "read_committed"})
        try:
            while not self.stopping.is_set():
                self._scan(consumer)
        finally:
            consumer.close()

    def _scan(self, consumer: confluent_kafka.Consumer) -> None:
        committed_before = self._ledger.committed.copy()
        ends: dict[Place, int] = {}
        seen: dict[int, bytes] = {}
        for message in _messages(consumer, {(self.topic, 0): confluent_kafka.OFFSET_BEGINNING}, self, ends):
            _, _, offset = _place_of(message)
            value = message.value() or b""
            if value.startswith(b"abort"):
                self.violated(f"{value!r:.40} at {offset} was aborted, and is delivered")
            if seen and offset <= max(seen):
                self.violated(f"{offset} is delivered after {max(seen)}")
            seen[offset] = value
        # A marker may still be on its way; what lies below the end is decided.
        stop = ends.get((self.topic, 0), 0)
        self.compare({offset: value for offset, value in committed_before.items() if offset < stop}, seen)

    def compare(self, expected: Mapping[int, bytes], seen: Mapping[int, bytes]) -> None:
        for offset, value in expected.items():
            if offset >= self._ledger.erased_below and seen.get(offset) != value:
                self.violated(f"{value!r:.40} at {offset} was committed, and {seen.get(offset)!r:.40} is delivered")


def _numbered_key(value: bytes) -> bytes:
    return b"key-%d" % (_number_of(value) % 7)


def _number_of(value: bytes) -> int:
    return int(value.split(b":")[1])


class KeyedTransactor(Transactor):
    """Into a compacted topic."""

    def key_of(self, value: bytes) -> bytes | None:
        return _numbered_key(value)

    def erase(self, client: RawKafka) -> None:
        """Compaction has enough to do here."""


class CommittedKeysReader(CommittedReader):
    """The newest committed value of each key stays, whatever was written, and aborted, behind it."""

    def compare(self, expected: Mapping[int, bytes], seen: Mapping[int, bytes]) -> None:
        newest = {_numbered_key(value): offset for offset, value in sorted(seen.items())}
        for offset, value in expected.items():
            if newest.get(_numbered_key(value), -1) < offset:
                self.violated(f"{value!r:.40} at {offset} was committed, and is gone")


# -- groups ----------------------------------------------------------------------------------------------------------


class Committer(Witness):
    """Commits one offset after the other: what is committed is never behind what was acknowledged."""

    def __init__(self, address: str, topic: str, history: History) -> None:
        super().__init__(address, topic, history)
        self._acked = -1
        self._tried = -1

    def act(self, client: RawKafka) -> None:
        group = "committer"
        self._tried += 1
        (code,) = commit(client, group, self.topic, {0: self._tried}).values()
        if not self.is_refused(code):
            self._acked = self._tried
        offset, code = committed(client, group, self.topic)
        if not self.is_refused(code) and not self._acked <= offset <= self._tried:
            self.violated(f"{offset} is committed, after {self._acked} was acknowledged and {self._tried} tried")
