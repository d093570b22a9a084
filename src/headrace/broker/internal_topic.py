"""A compacted topic in which coordinators keep their state: one partition per key, the last record per key counts.

Each partition has a coordinator of its own, on the broker that leads it. A broker that is alone leads and reads all of them at once,
and is the coordinator of whatever comes later; one of several reads each when it is given it, and forgets it when it loses it.

The topic is created when the first record is written. Order of records is the order of calls, also while the topic is
still being created. Records of one turn of the event loop share a batch: commits come by the thousand, and a batch of
one record costs as much to write, to read back and to upload as one of a hundred.

Nothing is written before its coordinator has read back all of it: what is decided on half of the facts is wrong. A record
that says nothing a coordinator understands is left out, with an event and a standing problem: one such record must not keep a
node from starting.
"""

import asyncio
import functools
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Produce
from headrace.broker.topics import Topic, Topics
from headrace.errors import CoordinatorLoading, HeadraceError, NotCoordinator, Rejected
from headrace.log.partition import Appended, PartitionLog
from headrace.records.batch import BatchHeader, Buffer, iterate_batches
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_batch_records
from headrace.telemetry.logging import get_logger
from headrace.telemetry.problems import Problems

log = get_logger(__name__)

_REPLAY_BYTES: Final = 1 << 20
_GATHERED_BYTES_MAX: Final = 256 * 1024
"""A shared batch is written out when it has grown to this."""
UNREADABLE: Final = (Rejected, ValueError, LookupError, struct.error, msgspec.MsgspecError)
"""What decoding bytes that nobody vouches for may raise."""

T = TypeVar("T")


class ReplayedBatch(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    header: BatchHeader
    records: list[Record]


@dataclass(slots=True)
class _Gathered:
    """Records of several callers on their way into one batch."""

    records: list[NewRecord] = field(default_factory=list)
    callers: list[tuple[int, int, Deferred[Appended]]] = field(default_factory=list)
    """Position of each caller's first record, their count, and where to say what became of them."""
    size: int = 0

    def add(self, records: Sequence[NewRecord]) -> Deferred[Appended]:
        deferred: Deferred[Appended] = Deferred()
        self.callers.append((len(self.records), len(records), deferred))
        self.records += records
        self.size += sum(len(each.key or b"") + len(each.value or b"") for each in records)
        return deferred

    def settle(self, done: Deferred[Appended]) -> None:
        try:
            base = done.result().base_offset
        except HeadraceError as error:
            for _, _, deferred in self.callers:
                deferred.reject(error)
            return
        for position, count, deferred in self.callers:
            deferred.resolve(Appended(base + position, base + position + count, -1, False))


class InternalTopic:
    def __init__(self, topics: Topics, produce: Produce, problems: Problems, *, name: str, partitions: int) -> None:
        self.name = name
        self._problems = problems
        self._unreadable_count = 0
        self.is_whole = False
        """Set by the coordinator of a broker that is alone, once it knows all that `replay` had to say."""
        self._loaded: set[int] = set()
        """Of a broker that is one of several: partitions that it leads and has read back."""
        self._topics = topics
        self._produce = produce
        self._partitions = partitions
        self._waiting: list[Callable[[], None]] = []
        self._gathered: dict[int, _Gathered] = {}
        self._creating: asyncio.Task[None] | None = None

    def require_loaded(self, key: str) -> None:
        """Raise unless this broker looks after `key`, and knows all that was written of it."""
        if self.is_whole:
            return
        index = self.partition_of(key)
        if index in self._loaded:
            return
        topic = self._topics.find(self.name)
        if self._topics.is_shared and (topic is None or self._is_elsewhere(topic, index)):
            leader = "" if topic is None else topic.leaders[index]
            raise NotCoordinator(f"partition {index} of {self.name} is led by {leader or 'nobody'}", broker=leader)
        raise CoordinatorLoading(f"partition {index} of {self.name} is still being read")

    def require_all_loaded(self) -> None:
        """Raise while anything that this broker looks after is still being read."""
        if not self.is_loaded:
            raise CoordinatorLoading(f"{self.name} is still being read")

    @property
    def is_loaded(self) -> bool:
        """Whether everything that this broker leads of it has been read back."""
        if self.is_whole or not self._topics.is_shared:
            return self.is_whole
        topic = self._topics.find(self.name)
        return topic is None or all(
            index in self._loaded or self._is_elsewhere(topic, index) for index in range(len(topic.partitions))
        )

    def _is_elsewhere(self, topic: Topic, index: int) -> bool:
        return topic.partitions[index].removed and not self._topics.is_being_opened(topic, index)

    def is_led_here(self, key: str) -> bool:
        """Whether this broker looks after `key`, or is about to."""
        topic = self._topics.find(self.name)
        return topic is not None and not self._is_elsewhere(topic, self.partition_of(key))

    def is_partition_loaded(self, index: int) -> bool:
        return self.is_whole or index in self._loaded

    def note_loaded(self, index: int | None) -> None:
        """Its coordinator knows all of that partition; None: of the topic, whatever becomes part of it."""
        if index is None:
            self.is_whole = True
        else:
            self._loaded.add(index)

    def note_lost(self, index: int) -> None:
        """It is led elsewhere: nobody here may write to it, nor answer for it."""
        self._loaded.discard(index)

    def leaders(self) -> frozenset[str]:
        """Whoever looks after some of it."""
        topic = self._topics.find(self.name)
        return frozenset() if topic is None else frozenset(topic.leaders)

    def partition_of(self, key: str) -> int:
        """Where `key` lives: the same partition that Apache Kafka's coordinators choose."""
        topic = self._topics.find(self.name)
        return java_hash(key) % (self._partitions if topic is None else len(topic.partitions))

    def leader_epoch_of(self, key: str) -> int:
        """The epoch under which whoever looks after `key` does so; 0 before there is anything to look after."""
        topic = self._topics.find(self.name)
        return 0 if topic is None else topic.partitions[self.partition_of(key)].leader_epoch

    async def leader_of(self, key: str) -> str:
        """The broker that looks after `key`. Makes the topic if need be: before that nobody does."""
        topic = await self.ensure()
        return topic.leaders[self.partition_of(key)]

    def known_leader_of(self, key: str) -> str:
        """The same; empty where nobody does."""
        topic = self._topics.find(self.name)
        return "" if topic is None else topic.leaders[self.partition_of(key)]

    def append(self, key: str, records: Sequence[NewRecord]) -> Deferred[Appended]:
        """Resolved when durable; rejected, never raised, when it cannot be."""
        index = self.partition_of(key)
        if not self.is_partition_loaded(index):
            return self._refused(index)
        gathered = self._gathered.get(index)
        if gathered is None:
            gathered = self._gathered[index] = _Gathered()
            asyncio.get_running_loop().call_soon(self._write, index, gathered)
        deferred = gathered.add(records)
        if gathered.size >= _GATHERED_BYTES_MAX:
            self._write(index, gathered)
        return deferred

    def _refused(self, index: int) -> Deferred[Appended]:
        """Of a coordinator that was deposed in the middle of something: another one has the partition."""
        assert self._topics.is_shared, f"partition {index} of {self.name} written to before it was read"
        refused: Deferred[Appended] = Deferred()
        refused.reject(NotCoordinator(f"partition {index} of {self.name} is another broker's by now"))
        return refused

    def _write(self, index: int, gathered: _Gathered) -> None:
        if self._gathered.get(index) is not gathered:
            return  # It grew large enough to be written before its turn ended.
        del self._gathered[index]
        appending = self._when_created(
            lambda partition: self._produce.append_internal(partition, gathered.records), index
        )
        appending.then(gathered.settle)

    def append_in_transaction(
        self, key: str, records: Sequence[NewRecord], *, producer_id: int, producer_epoch: int
    ) -> Deferred[Appended]:
        """Records that count only once the producer's transaction is committed; a fenced producer is rejected."""

        def append(partition: PartitionLog) -> Deferred[Appended]:
            batch = build_batch(
                records,
                now_ms=self._produce.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=True,
            )
            # Not through the client's door into the log: these carry no sequence numbers, as in Apache Kafka.
            return self._produce.append_marker(partition, batch)

        index = self.partition_of(key)
        if not self.is_partition_loaded(index):
            return self._refused(index)
        if (gathered := self._gathered.get(index)) is not None:
            self._write(index, gathered)
        return self._when_created(append, index)

    def _when_created(self, append: Callable[[PartitionLog], Deferred[Appended]], index: int) -> Deferred[Appended]:
        deferred: Deferred[Appended] = Deferred()

        def run() -> None:
            try:
                topic = self._topics.get(self.name)
                pass_on(append(topic.partitions[index]), deferred)
            except HeadraceError as error:
                deferred.reject(error)

        if self._creating is None and self._topics.find(self.name) is not None:
            run()
        else:
            self._waiting.append(run)
            if self._creating is None:
                self._creating = asyncio.ensure_future(self._create())
        return deferred

    async def _create(self) -> None:
        try:
            await self.ensure()
        except HeadraceError as error:
            log.error("internal topic not created", topic=self.name, reason=str(error))
        finally:
            # Also after a failure: each caller then fails for itself.
            self._creating = None
            waiting, self._waiting = self._waiting, []
            for run in waiting:
                run()

    async def ensure(self) -> Topic:
        return await self._topics.ensure_internal(self.name, partitions=self._partitions)

    async def stop(self) -> None:
        if self._creating is not None:
            await asyncio.gather(self._creating, return_exceptions=True)

    async def replay(self, index: int | None = None) -> AsyncIterator[ReplayedBatch]:
        """Everything in that partition, or in the topic, partition by partition, in order; what can be read of it."""
        self._unreadable_count = 0
        self._problems.clear(self._problem_key)
        topic = self._topics.find(self.name)
        for partition in _chosen(topic, index):
            offset, end = partition.log_start, partition.end_offset
            while offset < end:
                buffers = await _read(partition, offset, end)
                if not buffers:
                    break
                for header, batch in (each for buffer in buffers for each in iterate_batches(buffer)):
                    if header.end_offset <= offset:
                        continue
                    offset = header.end_offset
                    where = f"partition {partition.index}, offset {header.base_offset}"
                    records = self.read(where, functools.partial(_records_of, batch, header))
                    if records:
                        yield ReplayedBatch(partition=partition.index, header=header, records=records)
                        # Reading back takes seconds where there is much; others, heartbeats among them, have their turn in between.
                        await asyncio.sleep(0)

    def read(self, where: str, decode: Callable[[], T]) -> T | None:
        """What `decode` finds at `where`; None, an event and a standing problem for what it cannot make sense of."""
        try:
            return decode()
        except UNREADABLE as error:
            reason = str(error) or type(error).__name__
            log.error("record of a coordinator left out", topic=self.name, where=where, reason=reason)
            self._unreadable_count += 1
            self._problems.raise_problem(
                self._problem_key,
                f"{self._unreadable_count} records of {self.name} cannot be read and are left out, the last one at "
                f"{where}: {reason}",
            )
            return None

    @property
    def _problem_key(self) -> str:
        return f"unreadable records of {self.name}"


def _chosen(topic: Topic | None, index: int | None) -> Sequence[PartitionLog]:
    if topic is None:
        return ()
    return topic.partitions if index is None else topic.partitions[index : index + 1]


def _records_of(batch: Buffer, header: BatchHeader) -> list[Record]:
    return list(read_batch_records(batch, header))


async def _read(partition: PartitionLog, offset: int, end: int) -> Sequence[Buffer]:
    if partition.is_hot(offset):
        return partition.read_tail(offset, _REPLAY_BYTES, end, at_least_one=True).slices
    return await partition.read_cold(offset, _REPLAY_BYTES, end)


def pass_on(source: Deferred[Appended], target: Deferred[Appended]) -> None:
    def settled(done: Deferred[Appended]) -> None:
        try:
            target.resolve(done.result())
        except HeadraceError as error:
            target.reject(error)

    source.then(settled)


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java, made non-negative the way Kafka does."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    return 0 if signed == -(1 << 31) else abs(signed)
