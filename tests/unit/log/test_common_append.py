"""The append in C and its twin in Python: the same batches give the same places, the same errors and the same log."""

import asyncio
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kernels import kernel_or_skip
from tests.support.logs import NOW_MS, Opened, batch_of, opened
from tests.support.metastores import ManualClock

from headrace.broker.produce import Acknowledgement
from headrace.errors import HeadraceError, StorageFailed
from headrace.log import policy as policy_module
from headrace.log import store as store_module
from headrace.log.common_append import append_common
from headrace.log.partition import Appended, PartitionLog
from headrace.log.policy import Durability, TopicPolicy
from headrace.log.producers import SentBatch
from headrace.log.wal import format as wal_format
from headrace.log.wal.format import GROUP_HEADER_SIZE
from headrace.log.wal.writer import Group
from headrace.records import batch as batch_module
from headrace.records.batch import CONTROL, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL, Buffer, Codec
from headrace.records.record import write_varint

kernel = kernel_or_skip("headrace.log._append")

PARTITIONS = 2
SEQUENCES = 1 << 31
INT64_MAX = 2**63 - 1

POLICIES = [
    TopicPolicy(),
    TopicPolicy(is_compacted=True),
    TopicPolicy(uses_append_time=True),
    TopicPolicy(durability=Durability.OBJECT),
    TopicPolicy(message_bytes_max=100),
    TopicPolicy(message_bytes_max=2**70),
    TopicPolicy(timestamp_before_ms=1_000),
    TopicPolicy(timestamp_after_ms=0),
    TopicPolicy(timestamp_after_ms=INT64_MAX),
]


def raw_batch(
    *,
    size: int = 100,
    count: int = 1,
    delta: int | None = None,
    attributes: int = 0,
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    magic: int = MAGIC,
    length: int | None = None,
    is_corrupt: bool = False,
    is_garbled: bool = False,
    records: bytes | None = None,
) -> bytearray:
    """Exactly `size` bytes that say what they are told to, with records that are whole where there is room for them."""
    batch = bytearray(max(size, HEADER_SIZE))
    if not attributes & 7:
        batch[HEADER_SIZE:] = records_of(count, len(batch) - HEADER_SIZE)
    if is_garbled:
        batch[-1:] = b"\x7f"
    if records is not None:
        batch[HEADER_SIZE:] = records
        size = len(batch)
    said = len(batch) - LENGTH_OVERHEAD if length is None else length
    last = count - 1 if delta is None else delta
    HEADER.pack_into(
        batch, 0, 7, said, 3, magic, 0, attributes, last, 0, timestamp, producer_id, epoch, sequence, count
    )
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]) ^ is_corrupt)
    return batch[:size]


def records_of(count: int, size: int) -> bytes:
    """`count` whole records that fill `size` bytes, the last one with what is left; zeros where that cannot be."""
    records = bytearray()
    for delta in range(max(min(count, 1000), 0)):
        records += _record(delta, 0)
    missing = size - len(records)
    if count < 1 or missing < 0:
        return bytes(size)
    last = _record(count - 1, 0)
    for padding in range(max(missing - 8, 0), missing + 1):
        longer = _record(count - 1, padding)
        if len(records) - len(last) + len(longer) == size:
            return bytes(records[: len(records) - len(last)] + longer)
    return bytes(size)  # A length that takes one byte more leaves a gap that no record fills.


def _record(delta: int, value_size: int) -> bytes:
    body = bytearray(b"\0\0")
    write_varint(delta, body)
    write_varint(-1, body)
    write_varint(value_size, body)
    body += bytes(value_size) + b"\0"
    record = bytearray()
    write_varint(len(body), record)
    return bytes(record + body)


# Both ways to append, and all that may differ afterwards


class Outcome(NamedTuple):
    place: Appended | None
    error: type[HeadraceError] | None


def append_pure(partition: PartitionLog, batch: Buffer, ack: Acknowledgement) -> Outcome:
    """As `Produce.append` does it."""
    try:
        appended = partition._append_any(batch, NOW_MS)
        if partition.wait(appended.end_offset, ack):
            ack.expect_one()
    except HeadraceError as error:
        return Outcome(None, type(error))
    return Outcome(appended, None)


def append_compiled(
    log: Opened, partition: PartitionLog, batch: Buffer, ack: Acknowledgement, counts: Counter[str]
) -> Outcome:
    before = state_of(log), ack._pending
    base_offset = append_common(partition, batch, NOW_MS, ack)
    counts["declined" if base_offset is None else "taken"] += 1
    if base_offset is None:
        assert (state_of(log), ack._pending) == before, "declined, and yet something has changed"
        return append_pure(partition, batch, ack)
    return Outcome(Appended(base_offset, partition.end_offset, -1, False), None)


def state_of(log: Opened) -> Any:  # Any: compared, never looked into
    wal = log.store.wal
    return (
        [partition_state(each) for each in log.partitions],
        [group_state(each) for each in (*wal._closed, wal._open)],
        (wal.unflushed_bytes, wal._is_scheduled, log.store.memory.sealed_count, log.store.memory.used_bytes),
    )


def partition_state(partition: PartitionLog) -> Any:  # Any: as above
    tail, index = partition.tail, partition.tail.index
    is_special = partition.removed or partition._commit_waiters is not None
    assert partition.plain_size_max == (0 if is_special else policy_module.plain_size_max(partition.policy))
    return (
        (partition.end_offset, partition.durable_end, partition.high_watermark, partition.epoch_starts),
        [column.tolist() for column in (index.offsets, index.ends, index.positions, index.lsns, index.max_timestamps)],
        (index.timestamp_high, tail._position),
        [(each.size, each.used, each.position, bytes(each.memory[: each.used])) for each in tail._chunks],
        partition.producers.snapshot() if partition.producers is not None else None,
        partition.transactions.snapshot() if partition.transactions is not None else None,
        [end for end, _ in partition._commit_waiters or []],
    )


def group_state(group: Group) -> Any:  # Any: as above
    ends = [(partition.index, end) for partition, end in group.ends.items()]  # type: ignore[attr-defined]
    image = bytes(group.image[GROUP_HEADER_SIZE : GROUP_HEADER_SIZE + group.payload_size])
    return (group.lsn, group.room, group.payload_size, image, group.table, ends, len(group.waiters))


# What may come


class Batch(NamedTuple):
    """`sequence` and `size` may be relative to what the log looks like by then."""

    partition: int
    producer: int
    epoch: int
    sequence: int | str
    size: int | tuple[str, int]
    fields: dict[str, int | bool]
    kind: Callable[[bytearray], Buffer]
    is_same_request: bool


class Change(NamedTuple):
    """Something else that happens to a log between two appends."""

    what: str
    partition: int
    policy: TopicPolicy


FIELDS = st.one_of(
    st.just({}),
    st.just({}),
    st.sampled_from(
        [
            {"is_corrupt": True},
            {"is_garbled": True},
            {"delta": 7},
            {"count": 0},
            {"count": -1},
            {"count": 10, "size": 130},
            {"count": 1000},
            {"attributes": TRANSACTIONAL},
            {"attributes": CONTROL},
            {"attributes": 0x08},
            {"attributes": -32768},
            {"attributes": Codec.GZIP, "count": 5},
            {"attributes": Codec.ZSTD, "count": SEQUENCES - 1},
            {"attributes": Codec.LZ4, "count": 1 << 30},
            {"attributes": 5},
            {"attributes": 7},
            {"timestamp": NOW_MS + 3_600_000},
            {"timestamp": NOW_MS + 3_600_001},
            {"timestamp": NOW_MS + 1},
            {"timestamp": -1},
            {"timestamp": NOW_MS - 1_001},
            {"timestamp": INT64_MAX},
            {"timestamp": -(2**63)},
            {"magic": 1},
            {"length": 50},
            {"length": -12},
        ]
    ),
)
SIZES = st.one_of(
    st.integers(0, 3_000),
    st.tuples(st.sampled_from(["chunk", "group"]), st.integers(-1, 1)),
    st.sampled_from([60, 61, 67, 68, 4_096, 65_536, 200_000]),
)
SIGNED: dict[str, Any] = {"producer": 1, "epoch": 0, "sequence": "next"}  # Any: fields of `Batch`
KINDS = st.sampled_from([bytes, bytearray, memoryview])
COMMON_BATCHES = st.builds(
    lambda batch, age, is_signed: batch._replace(fields={"timestamp": NOW_MS - age}, **(SIGNED if is_signed else {})),
    st.builds(
        Batch,
        partition=st.integers(0, PARTITIONS - 1),
        producer=st.just(-1),
        epoch=st.just(-1),
        sequence=st.just(-1),
        size=st.integers(100, 300),
        fields=st.just({}),
        kind=KINDS,
        is_same_request=st.booleans(),
    ),
    st.integers(-100, 100),
    st.booleans(),
)
ANY_BATCHES = st.builds(
    Batch,
    st.integers(0, PARTITIONS - 1),
    st.sampled_from([-1, -1, 1, 1, 1, 2, -5, INT64_MAX]),
    st.sampled_from([0, 0, 0, 1, -1]),
    st.sampled_from(["next", "next", "next", "last", 0, 1, 5, -1, SEQUENCES - 1, SEQUENCES - 2]),
    SIZES,
    FIELDS,
    KINDS,
    st.booleans(),
)
CHANGES = st.builds(
    Change,
    # Whatever happens stays, so what leaves nothing to take is rare.
    st.sampled_from([*["flush", "plain", "epoch", "uploaded"] * 4, "policy", "policy", "ceiling", "remove", "fault"]),
    st.integers(0, PARTITIONS - 1),
    st.sampled_from(POLICIES),
)


def build(step: Batch, log: Opened) -> Buffer:
    partition = log.partitions[step.partition]
    sequence = step.sequence
    if isinstance(sequence, str):
        known = dict(partition.producers.items()).get(step.producer) if partition.producers is not None else None
        sent = known.batches[-1] if known is not None and known.batches else SentBatch(0, -1, 0, 0)
        sequence = (sent.last_sequence + 1) % SEQUENCES if sequence == "next" else sent.base_sequence
    fields: dict[str, Any] = {"size": step.size, **step.fields}  # Any: whatever `raw_batch` takes
    if isinstance(fields["size"], tuple):
        what, beyond = fields["size"]
        group, chunks = log.store.wal._open, partition.tail._chunks
        room = (
            group.room - group.payload_size if what == "group" else chunks[-1].size - chunks[-1].used if chunks else 0
        )
        fields["size"] = max(room, HEADER_SIZE) + beyond
    return step.kind(raw_batch(producer_id=step.producer, epoch=step.epoch, sequence=sequence, **fields))


async def change(log: Opened, step: Change) -> None:
    partition, wal = log.partitions[step.partition], log.store.wal
    match step.what:
        case "flush":
            if wal.failure is None:
                await wal.drain()
        case "policy":
            partition.apply_policy(step.policy)
        case "plain":
            partition.apply_policy(POLICIES[0])
        case "epoch":
            partition.leader_epoch += 1
        case "ceiling":
            partition.ceiling = partition.end_offset + log.store.ceiling_margin + 3
        case "uploaded":
            partition._commit_waiters = None
            partition._judge_plain()
        case "remove":
            log.store.remove(partition)
        case "fault":
            wal._refusal = StorageFailed("the disk is gone")


def test_the_compiled_append_does_what_its_twin_does() -> None:
    counts: Counter[str] = Counter()
    # `one_of` would take each of them as often as the others, however often it is named.
    step = st.sampled_from([*[COMMON_BATCHES] * 9, *[ANY_BATCHES] * 3, CHANGES]).flatmap(lambda each: each)

    @given(steps=st.lists(step, min_size=20, max_size=60))
    @settings(max_examples=30)
    def compare_all(steps: list[Batch | Change]) -> None:
        asyncio.run(compare(steps, counts))

    compare_all()
    assert min(counts["taken"], counts["declined"]) > 200, "one of them was hardly asked for anything"


async def compare(steps: list[Batch | Change], counts: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        async with (
            # How much memory a partition takes at a time depends on how fast it took the last.
            opened(Path(one), partitions=PARTITIONS, clock=ManualClock()) as compiled,
            opened(Path(two), partitions=PARTITIONS, clock=ManualClock()) as pure,
        ):
            raised: list[list[tuple[int, int]]] = [[], []]
            for log, calls in zip((compiled, pure), raised, strict=True):
                log.store.raise_ceiling = lambda each, calls=calls: calls.append((each.index, each.end_offset))  # type: ignore[misc]
                for partition in log.partitions:
                    # The first append is never common.
                    append_pure(partition, raw_batch(producer_id=1, epoch=0, sequence=0), Acknowledgement())
            acks = Acknowledgement(), Acknowledgement()
            for step in steps:
                if isinstance(step, Change):
                    await change(compiled, step)
                    await change(pure, step)
                    continue
                if not step.is_same_request:
                    acks = Acknowledgement(), Acknowledgement()
                batch = build(step, pure)
                found = append_compiled(compiled, compiled.partitions[step.partition], batch, acks[0], counts)
                expected = append_pure(pure.partitions[step.partition], batch, acks[1])
                assert found == expected
                assert acks[0]._pending == acks[1]._pending
                assert state_of(compiled) == state_of(pure)
            assert raised[0] == raised[1]
            for log in (compiled, pure):
                log.store.wal._refusal = None
                await log.store.wal.drain()
            assert state_of(compiled) == state_of(pure)


# The common case is really taken, and what is not common is really declined


async def ready(log: Opened) -> PartitionLog:
    """A partition whose first append, which is never common, is behind it."""
    partition = log.partitions[0]
    append_pure(partition, raw_batch(producer_id=1, epoch=0, sequence=0), Acknowledgement())
    return partition


async def test_a_producer_that_goes_on_was_seen_just_now(tmp_path: Path) -> None:
    """Whoever has been silent for long is forgotten, and its retries with it."""
    async with opened(tmp_path) as log:
        partition = await ready(log)
        later = NOW_MS + 60_000
        assert append_common(partition, raw_batch(producer_id=1, epoch=0, sequence=1), later, None) is not None
        assert partition.producers is not None
        assert partition.producers.expire(now_ms=later + 999, silent_ms=1_000, keep=frozenset()) == 0
        assert partition.producers.expire(now_ms=later + 1_001, silent_ms=1_000, keep=frozenset()) == 1


@pytest.mark.parametrize(
    "batch",
    [
        raw_batch(),
        raw_batch(size=4096 - 100),
        raw_batch(count=5),
        raw_batch(attributes=Codec.ZSTD, count=1 << 20),
        raw_batch(timestamp=-(2**62)),
        raw_batch(timestamp=NOW_MS + 3_600_000),
        raw_batch(producer_id=1, epoch=0, sequence=1),
        batch_of(b"a", b"b"),
    ],
)
async def test_common_batch_is_taken(tmp_path: Path, batch: bytearray) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        assert append_common(partition, batch, NOW_MS, None) == 1
        assert partition.end_offset == 1 + batch_module.read_header(batch).record_count
        await log.store.wal.drain()
        assert partition.high_watermark == partition.end_offset


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        bytes(60),
        raw_batch(size=4096 - 99),
        raw_batch(is_corrupt=True),
        raw_batch(is_garbled=True),
        raw_batch(count=2, records=_record(1, 5) + _record(0, 5)),
        raw_batch(records=_record(0, 5) + b"\0"),
        raw_batch(magic=1),
        raw_batch(length=50),
        raw_batch(length=-12),
        raw_batch(delta=7),
        raw_batch(count=0),
        raw_batch(count=0, attributes=Codec.GZIP),
        raw_batch(count=-1),
        raw_batch(count=15),
        raw_batch(attributes=Codec.GZIP, size=HEADER_SIZE),
        raw_batch(attributes=TRANSACTIONAL),
        raw_batch(attributes=CONTROL),
        raw_batch(attributes=5),
        raw_batch(timestamp=NOW_MS + 3_600_001),
        raw_batch(timestamp=-(2**63)),
        raw_batch(producer_id=1, epoch=0, sequence=0),
        raw_batch(producer_id=1, epoch=0, sequence=2),
        raw_batch(producer_id=1, epoch=1, sequence=0),
        raw_batch(producer_id=1, epoch=1, sequence=1),
        raw_batch(producer_id=2, epoch=0, sequence=0),
        raw_batch(producer_id=-5, epoch=0, sequence=0),
        raw_batch(producer_id=1, epoch=0, sequence=-1),
        raw_batch(producer_id=1, epoch=-1, sequence=1),
    ],
)
async def test_what_is_not_common_is_declined_without_a_trace(tmp_path: Path, batch: Buffer) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        before = state_of(log)
        assert append_common(partition, batch, NOW_MS, Acknowledgement()) is None
        assert state_of(log) == before


class StricterPolicy(TopicPolicy, frozen=True, kw_only=True):
    """A rule that somebody has added to the Python path, and to nothing else."""

    values_forbidden: bool = True


async def test_a_rule_that_only_python_knows_is_not_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        partition.apply_policy(StricterPolicy())
        assert append_common(partition, raw_batch(), NOW_MS, None) is None
        partition.apply_policy(TopicPolicy())
        assert append_common(partition, raw_batch(), NOW_MS, None) == 1


@pytest.mark.parametrize(
    "policy",
    [policy for policy in POLICIES[1:] if policy.message_bytes_max < 2**70 and policy.timestamp_after_ms < 2**60],
)
async def test_a_special_topic_is_declined(tmp_path: Path, policy: TopicPolicy) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        partition.apply_policy(policy)
        assert append_common(partition, raw_batch(size=101), NOW_MS, None) is None


async def test_a_partition_that_is_gone_or_has_others_waiting_for_object_storage_is_declined(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        await log.store.wal.drain()
        partition.apply_policy(TopicPolicy(durability=Durability.OBJECT))
        append_pure(partition, raw_batch(), Acknowledgement())
        partition.apply_policy(TopicPolicy())
        assert append_common(partition, raw_batch(), NOW_MS, None) is None
        await log.store.wal.drain()
        partition.mark_uploaded(2)
        assert append_common(partition, raw_batch(), NOW_MS, None) == 2
        log.store.remove(partition)
        assert append_common(partition, raw_batch(), NOW_MS, None) is None


async def test_repetition_is_recognised_also_when_the_sequences_have_come_round(tmp_path: Path) -> None:
    """Two batches use up all sequences there are, so the first one's repetition also continues the second."""
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        first = raw_batch(attributes=Codec.GZIP, count=SEQUENCES - 1, producer_id=1, epoch=0, sequence=0)
        partition.append(first, now_ms=NOW_MS)
        partition.append(raw_batch(producer_id=1, epoch=0, sequence=SEQUENCES - 1), now_ms=NOW_MS)
        again = partition.append(first, now_ms=NOW_MS)
        assert (again.base_offset, again.is_duplicate, partition.end_offset) == (0, True, SEQUENCES)


async def test_a_log_that_refuses_or_has_no_room_is_left_to_python(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        wal = log.store.wal
        wal._refusal = StorageFailed("the disk is gone")
        assert append_common(partition, raw_batch(), NOW_MS, None) is None
        wal._refusal = None
        room, wal._open.room = wal._open.room, wal._open.payload_size + 100
        assert append_common(partition, raw_batch(size=101), NOW_MS, None) is None
        assert append_common(partition, raw_batch(size=100), NOW_MS, None) == 1
        wal._open.room = room


async def test_the_ceiling_is_left_to_python_before_it_is_reached(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        partition.ceiling = partition.end_offset + log.store.ceiling_margin + 1
        assert append_common(partition, raw_batch(count=2), NOW_MS, None) is None
        assert append_common(partition, raw_batch(), NOW_MS, None) == 1


async def test_a_waiter_that_asks_twice_in_a_group_expects_one_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        ack = Acknowledgement()
        for _ in range(3):
            append_common(partition, raw_batch(), NOW_MS, ack)
        assert ack._pending == 1
        await log.store.wal.drain()
        assert ack._pending == 0


# Who is not the real thing is left to Python


class OwnPartition(PartitionLog):
    """A class of its own may do things of its own."""

    __slots__ = ("more",)


class FakeWal:
    """All that the twin asks of a WAL."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, sink: object, head: bytes, batch: Buffer, **_: int) -> int:
        self.batches.append(bytes(batch))
        return len(self.batches)


async def test_subclasses_and_stand_ins_are_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        options = {"topic_id": bytes(16), "topic_name": "own", "index": 9, "leader_epoch": 0}
        own = OwnPartition(log.store, policy=TopicPolicy(), ceiling=1 << 40, **options)  # type: ignore[arg-type]
        for _ in range(3):
            assert append_common(own, raw_batch(), NOW_MS, None) is None
            own.append(raw_batch(), now_ms=NOW_MS)
        assert own.end_offset == 3
        assert append_common(object(), raw_batch(), NOW_MS, None) is None  # type: ignore[arg-type]
        assert append_common(PartitionLog.__new__(PartitionLog), raw_batch(), NOW_MS, None) is None
        with monkeypatch.context() as patch:
            wal = FakeWal()
            patch.setattr(log.store, "wal", wal)
            assert append_common(partition, raw_batch(), NOW_MS, None) is None
            partition.append(raw_batch(), now_ms=NOW_MS)
            assert len(wal.batches) == 1
        assert append_common(partition, raw_batch(), 2**70, None) is None
        assert append_common(partition, raw_batch(), "now", None) is None  # type: ignore[arg-type]
        assert append_common(partition, "text", NOW_MS, None) is None  # type: ignore[arg-type]
        assert append_common(partition, raw_batch(), NOW_MS, None) == 2
        with pytest.raises(TypeError, match="append"):
            kernel.append(partition)


@pytest.mark.parametrize(
    "name", ["plain_size_max", "tail", "_entry_head", "epoch_starts", "end_offset", "ceiling", "_store"]
)
async def test_a_partition_that_lacks_something_is_declined(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as log:
        partition = await ready(log)
        kept = getattr(partition, name)
        for wrong in (None, object(), -(2**80)):
            setattr(partition, name, wrong)
            assert append_common(partition, raw_batch(), NOW_MS, None) is None
        delattr(partition, name)
        assert append_common(partition, raw_batch(), NOW_MS, None) is None
        setattr(partition, name, kept)
        assert append_common(partition, raw_batch(), NOW_MS, None) == 1


def test_facts_stated_twice_agree() -> None:
    assert {name: value for name, value in vars(kernel).items() if name.isupper()} == {
        "HEADER_SIZE": batch_module.HEADER_SIZE,
        "LENGTH_OVERHEAD": batch_module.LENGTH_OVERHEAD,
        "CRC_START": batch_module.CRC_START,
        "RECORD_SIZE_MIN": batch_module._RECORD_SIZE_MIN,
        "GROUP_HEADER_SIZE": wal_format.GROUP_HEADER_SIZE,
        "ENTRY_SIZE": wal_format.ENTRY_SIZE,
        "UNFLUSHED_BYTES_MAX": store_module._UNFLUSHED_BYTES_MAX,
        "SMALL_REQUEST": store_module._SMALL_REQUEST,
        "PLAIN_AHEAD_MS": policy_module.PLAIN_AHEAD_MS,
    }


def test_the_log_uses_the_compiled_append() -> None:
    assert append_common is kernel.append
