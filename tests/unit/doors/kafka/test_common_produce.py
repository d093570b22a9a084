"""Produce in C and in Python: the same bytes come in, the same bytes go out, and the same log is left behind."""

import asyncio
import contextlib
import gc
import hashlib
import itertools
import socket
import struct
import sys
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.kafka_door import OpenedDoor, Wire, opened_door
from tests.support.kernels import kernel_or_skip
from tests.support.logs import batch_of, turn_of_the_loop
from tests.support.metastores import ManualClock
from tests.support.raw_kafka import produce_request

from headrace.broker.ownership import is_internal
from headrace.broker.produce import Produce
from headrace.broker.topics import append_pointer
from headrace.control import cluster as cluster_module
from headrace.doors.connection import FramedConnection
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.kafka.server import KafkaDoor
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.slots import SLOTS_MAX
from headrace.errors import HeadraceError, InvalidRecords, StorageFailed
from headrace.ids import TopicId
from headrace.log import partition as partition_module
from headrace.log.partition import PartitionLog
from headrace.log.policy import TopicPolicy
from headrace.records.batch import Buffer
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import ProduceResponse

kernel = kernel_or_skip("headrace.doors.kafka._produce")

VERSIONS = range(7, 14)
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "other": (1, {}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "object": (1, {"durability": "object"}),
    "__consumer_offsets": (1, {}),
}
GOOD = bytes(batch_of(b"value"))
CORRUPT = GOOD[:-1] + b"?"
KEYED = bytes(build_batch([NewRecord(key=b"k", value=b"v")], now_ms=1))
LATE = bytes(build_batch([NewRecord(value=b"v")], now_ms=1 << 60))


def idempotent(sequence: int) -> bytes:
    return bytes(batch_of(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=sequence))


# One run of the door with and without the kernel


class Seen(NamedTuple):
    """All that a client, or a reader of the log, can tell the two apart by."""

    written: list[bytes]
    is_closed: list[bool]
    logs: dict[str, list[tuple[int, int, bytes]]]
    counters: tuple[int, int, int, int]


@contextlib.asynccontextmanager
async def a_door(is_pure: bool, topics: dict[str, tuple[int, dict[str, str]]] = TOPICS) -> AsyncIterator[OpenedDoor]:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if is_pure:
            patch.setattr(partition_module, "append_common", lambda *_: None)
        ids = itertools.chain([topic_id_of(name) for name in topics], map(topic_id_of, map(str, itertools.count())))
        async with opened_door(Path(directory), is_pure=is_pure, auto_create_topics_enable=False) as door:
            patch.setattr(cluster_module, "new_uuid", lambda _: UUID(bytes=next(ids)))
            for name, (partitions, config) in topics.items():
                create = door.topics.create_internal if is_internal(name) else door.topics.create
                await create(name, partitions=partitions, config=config)
            yield door
            if isinstance(disk := door.log.store.wal._flusher, HeldFlusher):
                disk.let_go()


def seen(door: OpenedDoor, wires: Sequence[Wire]) -> Seen:
    produce = door.door.broker.produce
    logs = {
        str(topic.name): [
            (
                each.end_offset,
                each.high_watermark,
                b"".join(bytes(part.view[: part.used]) for part in each.tail._chunks),
            )
            for each in topic.partitions
        ]
        for topic in door.topics.all()
    }
    return Seen(
        [bytes(wire.written) for wire in wires],
        [wire.is_closed for wire in wires],
        logs,
        (produce.batches_total, produce.records_total, produce.bytes_total, door.peers.refused_frames_total),
    )


async def both(scenario: Callable[[OpenedDoor], Any], **options: Any) -> Seen:  # Any: an awaitable of wires
    """Play `scenario` with and without the kernel; what is seen must be the same."""
    results = []
    for is_pure in (False, True):
        async with a_door(is_pure, **options) as door:
            wires = await scenario(door)
            results.append(seen(door, wires))
    assert results[0] == results[1]
    return results[0]


class Watched:
    """The kernel of a door, and how many frames it has served."""

    def __init__(self, door: OpenedDoor) -> None:
        assert door.door.common is not None
        self._kernel = door.door.common
        self.served = 0
        door.door.common = cast(Any, self)

    def take(self, frame: memoryview, connection: FramedConnection) -> bool:
        is_served = self._kernel.take(frame, connection)
        self.served += is_served
        return is_served

    def take_all(self, view: memoryview, filled: int, connection: FramedConnection) -> int:
        end = self._kernel.take_all(view, filled, connection)
        self.served += len(frames_of(bytes(view[:end])))
        return end


def frames_of(stream: bytes) -> list[bytes]:
    found = []
    while stream:
        end = 4 + struct.unpack_from(">i", stream)[0]
        found.append(stream[:end])
        stream = stream[end:]
    return found


def topic_id_of(name: str) -> TopicId:
    """The same for both doors, so that their answers can be compared."""
    return TopicId(hashlib.md5(name.encode()).digest())


def frame_of(
    rows: Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]],
    version: int,
    *,
    acks: int = -1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
    client_id: str | None = "client",
    correlation_id: int = 7,
) -> bytes:
    topics = [
        TopicProduceData(
            name, topic_id_of(name), [PartitionProduceData(index, records) for index, records in partitions]
        )
        for name, partitions in rows
    ]
    request = ProduceRequest(transactional_id, acks, timeout_ms, topics)
    return bytes(encode_request(request, version, correlation_id, client_id))


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def offer(wire: Wire, frame: bytes) -> None:
    """As a client would: not before the door reads again, and not to a door that is closed."""
    while not wire.is_read_from and not wire.is_closed:
        await turn_of_the_loop()
    wire.feed(frame)


# Random requests

RECORDS = st.sampled_from(
    [
        GOOD,
        GOOD,
        GOOD,
        GOOD * 2,
        CORRUPT,
        GOOD[:60],
        b"",
        None,
        KEYED,
        LATE,
        idempotent(0),
        idempotent(2),
        idempotent(9),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(
            ["plain", "plain", "plain", "other", "stamped", "compacted", *TOPICS, "nowhere", "", "ü", "x" * 300]
        ),
        st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3, -1, 2**31 - 1]), RECORDS), min_size=0, max_size=5),
    ),
    min_size=0,
    max_size=4,
)


class Step(NamedTuple):
    rows: list[tuple[str, list[tuple[int, bytes | None]]]]
    version: int
    acks: int
    client_id: str | None
    transactional_id: str | None
    tail: bytes
    """What stands where the request's tagged fields would be none."""
    then: str
    """What follows: the next frame in the same piece, in a piece of its own, or only after an answer."""


STEPS = st.builds(
    Step,
    ROWS,
    st.sampled_from(VERSIONS),
    st.sampled_from([1, -1, -1, -1, 0, 7]),
    st.sampled_from(["client", "client", None, "", "ö"]),
    st.sampled_from([None, None, None, None, "", "tx"]),
    st.sampled_from([b"\0", b"\0", b"\0", b"", b"\x01\x05\x01x", b"\0trailing", b"\x01\x05\x7f"]),
    st.sampled_from(["joined", "alone", "flushed"]),
)


@given(steps=st.lists(STEPS, min_size=1, max_size=12))
@settings(max_examples=20)
async def test_answers_are_the_same_to_the_last_byte(steps: list[Step]) -> None:
    async def scenario(door: OpenedDoor) -> list[Wire]:
        wires = [door.connect()]
        piece = b""
        for number, step in enumerate(steps):
            frame = frame_of(
                step.rows,
                step.version,
                acks=step.acks,
                client_id=step.client_id,
                transactional_id=step.transactional_id,
                correlation_id=number,
            )
            if step.version >= 9:
                frame = sized(frame[4:-1] + step.tail)
            piece += frame
            if step.then == "joined" and number + 1 < len(steps):
                continue
            if wires[-1].is_closed:
                wires.append(door.connect())
            await offer(wires[-1], piece)
            piece = b""
            if step.then == "flushed":
                await door.settle()
        await door.settle()
        door.clock.advance(2000)
        door.peers.expire(door.clock.now_ms())
        await door.settle()
        return wires

    await both(scenario)


@pytest.mark.parametrize("version", VERSIONS)
async def test_common_request_is_served_by_the_kernel(version: int) -> None:
    async with a_door(False) as door:
        watched = Watched(door)
        wire = door.connect()
        rows = [("plain", [(0, GOOD), (1, CORRUPT), (2, idempotent(0))]), ("other", [(0, GOOD)])]
        for acks in (1, -1, 0):
            wire.feed(frame_of(rows, version, acks=acks))
        assert watched.served == 2
        await door.settle()
        answer = wire.frames()[0]
        assert len(wire.frames()) == 2
        assert wire.is_closed
        decoded = ProduceResponse.decode(answer, version, 4 if version < 9 else 5)
        codes = [[row.error_code for row in topic.partition_responses] for topic in decoded.responses]
        assert codes == [[0, ErrorCode.CORRUPT_MESSAGE, 0], [0]]


@pytest.mark.parametrize(("count", "is_served", "version"), [(1000, True, 8), (1024, True, 11), (1025, False, 11)])
async def test_many_partitions_in_one_request(count: int, is_served: bool, version: int) -> None:
    assert kernel.ROWS_MAX == 1024
    wide: dict[str, tuple[int, dict[str, str]]] = {"wide": (1100, {}), "second": (1, {})}
    rows = [("wide", [(index, GOOD if index % 7 else CORRUPT) for index in range(count - 1)]), ("second", [(0, GOOD)])]
    served = 0

    async def scenario(door: OpenedDoor) -> list[Wire]:
        nonlocal served
        watched = Watched(door) if door.door.common is not None else None
        wire = door.connect()
        for _ in range(2):
            wire.feed(frame_of(rows, version))
            await door.settle()
        served += watched.served if watched is not None else 0
        return [wire]

    result = await both(scenario, topics=wide)
    assert served == 2 * is_served
    assert len(result.written[0]) > 2 * count * 30


# Frames that are not what they should be


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_prefix_of_a_frame_is_taken_the_same_way(version: int) -> None:
    body = frame_of([("plain", [(0, GOOD), (1, GOOD)]), ("other", [(0, GOOD)])], version)[4:]

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wires = []
        for end in range(8, len(body) + 1):
            wires.append(door.connect())
            wires[-1].feed(sized(body[:end]))
        await door.settle()
        return wires

    result = await both(scenario)
    # Nothing but the whole frame is a request.
    assert [len(each) > 0 for each in result.written] == [False] * (len(result.written) - 1) + [True]
    assert result.logs["plain"][0][0] == 1


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "flip", "insert", "delete"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]), st.integers(0, 255)),
    ),
    min_size=1,
    max_size=4,
)


def mutilated(body: bytes, edits: list[tuple[str, float, int]], among_first: int) -> bytes:
    changed = bytearray(body)
    for what, where, value in edits:
        at = int(where * min(len(changed), among_first))
        match what:
            case "set":
                changed[at] = value
            case "flip":
                changed[at] ^= 1 << value % 8
            case "insert":
                changed.insert(at, value)
            case "delete":
                del changed[at]
    return bytes(changed)


@given(
    version=st.sampled_from(VERSIONS),
    all_edits=st.lists(st.tuples(EDITS, st.sampled_from([60, 1000])), min_size=1, max_size=20),
)
@example(version=9, all_edits=[([("set", 0.17, 0xFF)], 60)])  # a client id that is not text
@settings(max_examples=20)
async def test_a_mutilated_frame_is_taken_the_same_way(
    version: int, all_edits: list[tuple[list[tuple[str, float, int]], int]]
) -> None:
    whole = frame_of([("plain", [(0, GOOD), (1, GOOD)]), ("other", [(0, GOOD)])], version)

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wires = []
        for edits, among_first in all_edits:
            wires.append(door.connect())
            wires[-1].feed(sized(mutilated(whole[4:], edits, among_first)))
            if not wires[-1].is_closed:
                wires[-1].feed(whole)
        await door.settle()
        return wires

    await both(scenario)


@given(
    data=st.binary(max_size=200),
    head=st.sampled_from([b"", struct.pack(">hhi", 0, 9, 1), struct.pack(">hhi", 0, 7, 1)]),
)
@settings(max_examples=100)
async def test_noise_is_declined(data: bytes, head: bytes) -> None:
    take = kernel.Kernel(
        produce=Produce(cast(Any, None), ManualClock()),
        can_take=None,
        now_ms=None,
        append=append_pointer,
        append_carefully=None,
        fail=None,
    ).take
    connection = FramedConnection(ConnectionSet("test"))
    with contextlib.suppress(TypeError):  # A request of no topics is a request: there is nobody here to serve it.
        assert take(memoryview(head + data), connection) is False
        assert take(memoryview(bytes(4) + head + data), connection) is False


def test_a_kernel_is_complete_or_not_at_all() -> None:
    with pytest.raises(TypeError):
        kernel.Kernel()
    with pytest.raises(TypeError):
        kernel.Kernel.__new__(kernel.Kernel)
    with pytest.raises(TypeError):
        kernel.Reply()
    parts = {"produce": Produce(cast(Any, None), ManualClock()), "can_take": None, "now_ms": None}
    with pytest.raises(ValueError, match="Capsule"):
        kernel.Kernel(**parts, append=None, append_carefully=None, fail=None)
    whole = kernel.Kernel(**parts, append=append_pointer, append_carefully=None, fail=None)
    with pytest.raises(TypeError, match="FramedConnection"):
        whole.take(memoryview(frame_of([("plain", [(0, GOOD)])], 9)), None)


async def test_a_log_with_plenty_of_room_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened_door(tmp_path, ["plain"]) as door:
        store, wal = door.log.store, door.log.store.wal
        monkeypatch.setattr(store, "can_take", lambda size: False)
        for is_far, unflushed, is_taken in [(True, 0, True), (False, 0, False), (True, 64 * 1024 * 1024, False)]:
            wal.is_far_from_full, wal.unflushed_bytes = is_far, unflushed
            wire = door.connect()
            wire.feed(frame_of([("plain", [(0, GOOD)])], 9))
            assert wire.is_read_from is is_taken
            wal.unflushed_bytes -= unflushed
        assert store.has_paused_producers
        monkeypatch.undo()
        store.room_changed()
        await door.settle()
        assert door.topics.get("plain").partitions[0].end_offset == 3


# Rights and limits


async def test_a_topic_that_the_connection_does_not_list_is_left_to_python() -> None:
    """Rights are decided in Python; the kernel knows the names that are left, and looks for no others."""

    async def scenario(door: OpenedDoor) -> list[Wire]:
        watched = Watched(door) if door.door.common is not None else None
        wire = door.connect()
        assert "__consumer_offsets" not in wire._connection._open_topics
        open_topics = {door.topics.get(name) for name in TOPICS.keys() - {"__consumer_offsets", "compacted"}}
        named = {topic.name: topic for topic in open_topics} | {topic.id: topic for topic in open_topics}
        assert wire._connection._open_topics == named
        await door.topics.alter_config("compacted", lambda _: {})
        assert "compacted" in wire._connection._open_topics
        await door.topics.alter_config("compacted", lambda _: {"cleanup.policy": "compact"})
        assert "compacted" not in wire._connection._open_topics
        plain = door.topics.get("plain")
        for writable, version, is_served in [
            ({"plain": plain}, 9, True),
            ({}, 9, False),
            ({"other": plain}, 9, False),
            (None, 9, False),
            ({plain.id: plain}, 9, False),
            ({plain.id: plain}, 13, True),
            ({"plain": plain}, 13, False),
        ]:
            wire._connection._open_topics = cast(Any, writable)
            before = watched.served if watched is not None else 0
            wire.feed(frame_of([("plain", [(0, GOOD)])], version))
            assert watched is None or watched.served - before == is_served
        await door.settle()
        return [wire]

    result = await both(scenario)
    assert len(frames_of(result.written[0])) == 7


async def test_a_topic_deleted_and_made_again_is_not_found_under_its_former_id() -> None:
    """Neither by the kernel nor by its twin: what was meant for the one does not go to the other (trap 14)."""

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        former = frame_of([("plain", [(0, GOOD)])], 13)
        wire.feed(former)
        await door.settle()
        await door.topics.delete("plain")
        await door.topics.create("plain", partitions=1)
        wire.feed(former)
        await door.settle()
        assert door.topics.get("plain").partitions[0].end_offset == 0
        return [wire]

    result = await both(scenario)
    answers = [ProduceResponse.decode(frame, 13, 5 + 4) for frame in frames_of(result.written[0])]
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_request_that_names_a_transaction_is_left_to_python() -> None:
    """Rights to a transactional id are asked for there, whatever the batches say."""
    async with a_door(is_pure=False) as door:
        watched = Watched(door)
        wire = door.connect()
        for transactional_id, served in ((None, 1), ("t", 1), ("", 1), (None, 2)):
            wire.feed(frame_of([("plain", [(0, GOOD)])], 9, transactional_id=transactional_id))
            assert watched.served == served
        await door.settle()


async def test_a_version_that_is_not_known_yet_is_left_to_python() -> None:
    async with a_door(is_pure=False) as door:
        wire = door.connect()
        assert door.door.common is not None
        frame = bytearray(frame_of([("plain", [(0, GOOD)])], VERSIONS[-1]))
        for version, is_served in ((VERSIONS[-1] + 1, False), (VERSIONS[-1], True)):
            frame[6:8] = version.to_bytes(2)
            assert door.door.common.take(memoryview(bytes(frame)), wire._connection) is is_served
        await door.settle()


async def test_a_client_is_owed_only_so_many_answers_at_once() -> None:
    """What lands in one piece may hold thousands of requests; behind the bound they wait unread, as in Python."""
    assert kernel.SLOTS_MAX == SLOTS_MAX
    owed = []

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        disk = HeldFlusher(door)
        wire.feed(frame_of([("plain", [(0, GOOD)])], 9) * 1000)
        owed.append(len(wire._connection._slots))
        assert not wire.is_read_from
        while len(wire.frames()) < 1000:
            await turns()
            if disk.is_holding:
                disk.finish()
        return [wire]

    result = await both(scenario)
    assert owed == [SLOTS_MAX] * 2
    assert result.logs["plain"][0][0] == 1000


class StricterPolicy(TopicPolicy, frozen=True, kw_only=True):
    is_new: bool = True


async def test_a_rule_that_only_python_knows_holds_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """The append in Python refuses what a new field of the policy forbids; nothing in C has heard of it."""
    append_any = PartitionLog._append_any

    def strictly(self: PartitionLog, batch: Buffer, *rest: Any) -> Any:  # Any: as the original
        if getattr(self.policy, "is_new", False):
            raise InvalidRecords("not any more")
        return append_any(self, batch, *rest)

    monkeypatch.setattr(PartitionLog, "_append_any", strictly)

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        wire.feed(frame_of([("plain", [(0, GOOD)])], 9))
        for partition in door.topics.get("plain").partitions:
            partition.apply_policy(StricterPolicy())
        wire.feed(frame_of([("plain", [(0, GOOD)])], 9))
        await door.settle()
        return [wire]

    result = await both(scenario)
    assert result.logs["plain"][0][0] == 1


# What can happen between the append and the answer


class HeldFlusher:
    """A disk that does what it is told, when it is told."""

    def __init__(self, door: OpenedDoor) -> None:
        self._wal = door.log.store.wal
        self._real = self._wal._flusher
        self._wal._flusher = self
        self._held: tuple[int, memoryview] | None = None

    def write(self, lsn: int, image: memoryview) -> None:
        self._held = (lsn, image)

    @property
    def is_holding(self) -> bool:
        return self._held is not None

    def finish(self, error: HeadraceError | None = None) -> None:
        self._held = None
        self._wal._flushed(error)

    def let_go(self) -> None:
        """From here on the real one does it."""
        self._wal._flusher = self._real
        if self._held is not None:
            self._real.write(*self._held)

    def close(self) -> None:
        self._real.close()


async def turns() -> None:
    await turn_of_the_loop(3)


BROKEN = StorageFailed("the disk is gone")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_failed_flush_is_told_to_every_partition_that_was_not_kept(version: int) -> None:
    """Two rows go into a group that is kept, the third and the fourth into one that is not; one was refused at once."""

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wires = [door.connect(), door.connect()]
        disk = HeldFlusher(door)
        wires[0].feed(frame_of([("plain", [(0, GOOD)])], version))
        await turns()
        disk.finish()
        await turns()
        door.log.store.wal._open.room = 2 * (len(GOOD) + 36)
        rows = [("plain", [(0, GOOD), (1, GOOD), (2, GOOD)]), ("other", [(0, CORRUPT), (0, GOOD)])]
        wires[0].feed(frame_of(rows, version, correlation_id=8))
        wires[1].feed(frame_of([("other", [(0, GOOD)])], version, correlation_id=9))
        await turns()
        disk.finish()
        await turns()
        disk.finish(BROKEN)
        await turns()
        wires[1].feed(frame_of([("other", [(0, GOOD)])], version, correlation_id=10))
        await turns()
        return wires

    result = await both(scenario)
    frames = [answer[4:] for answer in frames_of(result.written[0])]
    decoded = ProduceResponse.decode(frames[1], version, 4 if version < 9 else 5)
    codes = [[row.error_code for row in topic.partition_responses] for topic in decoded.responses]
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert codes == [[0, 0, failed], [ErrorCode.CORRUPT_MESSAGE, failed]]
    assert len(frames_of(result.written[1])) == 2


async def test_answers_to_a_flush_leave_with_it_and_not_at_the_end_of_the_turn(tmp_path: Path) -> None:
    """The rest of the turn may belong to another door."""
    loop = asyncio.get_running_loop()
    async with opened_door(tmp_path, ["plain"]) as door:
        served = KafkaDoor(KafkaSettings(listen="127.0.0.1:0"), door.door.broker)
        await served.start()
        with socket.create_connection(served.address) as client:
            client.setblocking(False)
            disk = HeldFlusher(door)
            await loop.sock_sendall(client, frame_of([("plain", [(0, GOOD)])], 9))
            answer = b""
            while not disk.is_holding:
                await turn_of_the_loop()
            disk.finish()
            disk.let_go()
            with contextlib.suppress(BlockingIOError):
                answer = client.recv(1024)
        await served.stop()
        assert answer[4:8] == struct.pack(">i", 7)


@pytest.mark.parametrize("version", [7, 11])
async def test_patience_ends_and_what_is_kept_later_is_not_told_again(version: int) -> None:
    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        disk = HeldFlusher(door)
        wire.feed(frame_of([("plain", [(0, GOOD), (1, CORRUPT)])], version, timeout_ms=1000))
        wire.feed(frame_of([("plain", [(2, GOOD)])], version, timeout_ms=5000, correlation_id=8))
        for step in (999, 1):
            door.clock.advance(step)
            door.peers.expire(door.clock.now_ms())
            await turns()
        assert wire.answered() == [7]
        disk.finish()
        await turns()
        assert wire.answered() == [7, 8]
        return [wire]

    await both(scenario)


async def test_a_client_that_leaves_before_its_answer_is_forgotten_and_its_records_are_kept() -> None:
    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire, other = door.connect(), door.connect()
        gone = weakref.ref(wire._connection)
        disk = HeldFlusher(door)
        wire.feed(frame_of([("plain", [(0, GOOD)]), ("object", [(0, GOOD)])], 9))
        other.feed(frame_of([("plain", [(0, GOOD)])], 9))
        wire.close()
        await turns()
        del wire
        disk.finish()
        await turns()
        door.topics.get("object").partitions[0].mark_uploaded(1)
        await turns()
        gc.collect()
        assert gone() is None
        return [other]

    result = await both(scenario)
    assert result.logs["plain"][0][:2] == (2, 2)


@pytest.mark.parametrize("error", [BROKEN, None])
async def test_a_topic_that_is_made_anew_meanwhile_does_not_answer_for_the_old_one(error: HeadraceError | None) -> None:
    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        disk = HeldFlusher(door)
        wire.feed(frame_of([("plain", [(2, GOOD), (0, GOOD)])], 9))
        await turns()
        await door.topics.delete("plain")
        await door.topics.create("plain", partitions=1)
        door.topics.get("plain").partitions[0].high_watermark = 100
        if error is None:
            door.clock.advance(1001)
            door.peers.expire(door.clock.now_ms())
        disk.finish(error)
        await turns()
        return [wire]

    result = await both(scenario)
    rows = ProduceResponse.decode(result.written[0][4:], 9, 5).responses[0].partition_responses
    code = ErrorCode.REQUEST_TIMED_OUT if error is None else ErrorCode.KAFKA_STORAGE_ERROR
    assert [row.error_code for row in rows] == [code, code]


async def test_what_nobody_foresaw_ends_the_connection_after_what_was_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of ours")

    async def scenario(door: OpenedDoor) -> list[Wire]:
        wire = door.connect()
        disk = HeldFlusher(door)
        wire.feed(frame_of([("plain", [(0, GOOD)])], 9))
        with monkeypatch.context() as patch:
            patch.setattr(Produce, "append", breaks)
            wire.feed(frame_of([("plain", [(0, CORRUPT)])], 9, correlation_id=8))
        await turns()
        assert not wire.is_closed
        door.clock.advance(500)
        door.peers.expire(door.clock.now_ms())
        disk.finish()
        await turns()
        assert wire.is_closed
        return [wire]

    await both(scenario)


async def test_a_frame_inside_a_frame_is_left_to_python() -> None:
    """Nobody does this; the kernel's memory for one request would be two requests' if somebody did."""
    async with a_door(False) as door:
        assert door.door.common is not None
        take = door.door.common.take
        wire = door.connect()
        frame = memoryview(frame_of([("plain", [(0, GOOD)])], 9))
        nested: list[bool] = []

        class Asking(list[Any]):  # Any: never filled
            def append(self, _: object) -> None:
                nested.append(take(frame, wire._connection))

        wire._connection._slots = Asking()  # type: ignore[assignment]
        assert take(frame, wire._connection) is True
        assert nested == [False]
        await door.settle()


# Memory


def replies_alive() -> int:
    return sum(type(each) is kernel.Reply for each in gc.get_objects())


async def test_nothing_is_left_of_a_request_once_it_is_answered() -> None:
    rounds, per_round = 100, 500
    gc.collect()
    before = replies_alive()
    async with a_door(False) as door:
        watched_total = 0
        wire = door.connect()
        common = frame_of([("plain", [(0, GOOD), (1, GOOD)]), ("other", [(0, GOOD)])], 9)
        careful = frame_of([("plain", [(0, CORRUPT)])], 9)
        declined = frame_of([("nowhere", [(0, GOOD)])], 9)
        blocks = []
        for number in range(rounds):
            for nth in range(per_round):
                wire.feed(common if nth % 10 else careful if nth % 20 else declined)
            await door.settle()
            watched_total += len(wire.frames())
            wire.written.clear()
            for name in ("plain", "other"):
                for partition in door.topics.get(name).partitions:
                    partition.mark_uploaded(partition.durable_end)
            await door.log.store.trim()
            if number % 30 == 9:
                gc.collect()
                blocks.append(sys.getallocatedblocks())
        assert watched_total == rounds * per_round
        # 45,000 requests later: a leak of one object for each would be hundreds of times as much.
        assert blocks[-1] - blocks[0] < 1_000, blocks
        assert replies_alive() == before
        gone = weakref.ref(wire._connection)
        wire.close()
        await turns()
        del wire
        gc.collect()
        assert gone() is None


async def test_an_answer_that_never_came_goes_with_its_connection() -> None:
    """The two hold each other: nobody else may be needed to let go of them."""
    async with a_door(False) as door:
        wire = door.connect()
        wire.feed(frame_of([("object", [(0, GOOD)])], 9))
        (reply,) = wire._connection._slots
        assert type(reply) is kernel.Reply
        gone = weakref.ref(wire._connection)
        await door.settle()
        door.topics.get("object").partitions[0]._commit_waiters = None
        door.peers.connections.clear()
        del wire, reply
        gc.collect()
        assert gone() is None


async def test_a_broker_that_is_gone_takes_its_kernel_along() -> None:
    """Somebody still waits in its log: log, answer, connection and kernel make one circle."""
    async with a_door(False) as door:
        door.connect().feed(frame_of([("object", [(0, GOOD)])], 9))
        gone = weakref.ref(door.door.broker.produce)
        await door.settle()
    del door
    gc.collect()
    assert gone() is None


async def test_api_versions_still_goes_its_way() -> None:
    async with a_door(False) as door:
        watched = Watched(door)
        wire = door.connect()
        sent = [wire.send(ApiVersionsRequest(), 0), wire.send(produce_request("plain", 0, GOOD), 9)]
        await door.settle()
        assert wire.answered() == sent
        assert watched.served == 1
