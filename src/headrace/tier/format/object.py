"""Data objects: unmodified record batches, one after the other, and an index of them at the end.

    batches of (topic, partition) A | batches of B | ... | index | tail

The batches of one partition lie together, in offset order. An index entry covers a *run*: consecutive batches
of one partition, up to about a mebibyte, with one CRC. Runs keep the index small (72 bytes per mebibyte) and
are what readers prune by offset and time and split work at; inside a run, batch borders are found by walking
the batches' own length fields. See `docs/formats/object.md`.

A *stream object* holds one partition, a *stream set object* several; the kind is a hint, the layout the same.

Version 2 has, behind the index, what each run says of producers and transactions (`run_state`): brokers of a cluster write it, for whoever
takes their partitions over. A node that is alone writes version 1. Readers of records need not know the difference.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum, IntFlag
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted
from headrace.ids import Offset, Partition, TopicId
from headrace.records.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    Buffer,
    batch_size_at,
    has_valid_crc,
    read_header,
)
from headrace.records.batch import MAGIC as BATCH_MAGIC
from headrace.records.stretch import Summary, crc_of_batches, summary_of
from headrace.tier.format.framing import TAIL_SIZE, open_footer, parse_tail, seal
from headrace.tier.format.run_state import RunState, RunStateBuilder, decode_states, encode_state

MAGIC: Final = b"HRTIEROB"
VERSION: Final = 2
"""The newest there is."""
_VERSION_PLAIN: Final = 1
RUN_BYTES_MAX: Final = 1024 * 1024
"""A run ends once it holds this much. Smaller runs prune better, larger ones cost less index."""

_ENTRY: Final = struct.Struct(">16siiqqQqIIBBHI")
ENTRY_SIZE: Final = _ENTRY.size


class Kind(IntEnum):
    STREAM = 0
    STREAM_SET = 1


class RunFlags(IntFlag):
    CONTROL = 1
    TRANSACTIONAL = 2


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One index entry: consecutive batches of one partition."""

    topic_id: TopicId
    partition: Partition
    leader_epoch: int
    """Of the last batch."""
    base_offset: Offset
    last_offset: Offset
    position: int
    length: int
    max_timestamp_ms: int
    """There is no minimum: a batch's base timestamp is its first record's, which need not be the lowest."""
    record_count: int
    codecs: int
    """Bit n is set when some batch uses Kafka codec n (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)."""
    flags: RunFlags
    crc: int
    """CRC-32C of the run's bytes."""

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1


class Footer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: Kind
    runs: tuple[Run, ...]

    def runs_of(self, topic_id: TopicId, partition: Partition) -> list[Run]:
        return [run for run in self.runs if run.partition == partition and run.topic_id == topic_id]


class ObjectBuilder:
    """Collects batches by reference; nothing is copied until somebody writes `chunks()`.

    A partition's batches must be handed over together and in offset order.
    The buffers must not change before the object has been written. `has_states` makes it an object of version 2.
    """

    def __init__(self, kind: Kind, *, has_states: bool = False) -> None:
        self._kind = kind
        self._has_states = has_states
        self._states: list[bytes] = []
        self._states_size = 0
        self._chunks: list[Buffer] = []
        self._runs: list[Run] = []
        self._entries: list[bytes] = []
        """Of the footer, made with each partition: ten thousand at the end would take long."""
        self._seen: set[tuple[TopicId, Partition]] = set()
        self._current: tuple[TopicId, Partition]
        self._pending: _PendingRun | None = None
        self._first_run = 0
        self.body_size = 0

    def add(self, topic_id: TopicId, partition: Partition, batches: Iterable[Buffer]) -> list[Run]:
        """Append all of one partition's batches; gives back the runs that cover them."""
        self.begin(topic_id, partition)
        self.extend(batches)
        return self.finish()

    def begin(self, topic_id: TopicId, partition: Partition) -> None:
        """Go on with another partition: `extend` any number of times, then `finish`."""
        assert (topic_id, partition) not in self._seen, "a partition's batches must lie together"
        assert self._pending is None, "finish the partition before"
        self._seen.add((topic_id, partition))
        self._current = topic_id, partition
        self._first_run = len(self._runs)
        self._pending = self._new_run()

    def _new_run(self) -> "_PendingRun":
        return _PendingRun(self.body_size, RunStateBuilder() if self._has_states else None)

    def extend(self, batches: Iterable[Buffer]) -> None:
        for batch in batches:
            self.extend_stretch(batch)

    def extend_stretch(self, stretch: Buffer) -> None:
        """As `extend`, for batches that lie back to back: they stay one piece."""
        assert self._pending is not None
        view = memoryview(stretch)
        start = 0
        while start < len(view):
            if self._pending.length >= RUN_BYTES_MAX:
                self._finish_run(self._pending)
                self._pending = self._new_run()
            # A run takes batches as long as it is short of its size when one begins.
            summary = summary_of(view, start, RUN_BYTES_MAX - self._pending.length)
            self._pending.add(summary, view[start : summary.end])
            self.body_size += summary.end - start
            start = summary.end
        self._chunks.append(stretch)

    def finish(self) -> list[Run]:
        """The runs of the partition just added."""
        assert self._pending is not None
        if self._pending.length:
            self._finish_run(self._pending)
        self._pending = None
        runs = self._runs[self._first_run :]
        self._entries += [_encode_entry(run) for run in runs]
        return runs

    def _finish_run(self, pending: "_PendingRun") -> None:
        self._runs.append(pending.finish(*self._current))
        if pending.state is not None:
            self._states.append(encode_state(pending.state.finish(), pending.length))
            self._states_size += len(self._states[-1])

    def chunks(self) -> list[Buffer]:
        """The whole object, in pieces to be written one after the other."""
        footer = seal(
            b"".join([*self._entries, *self._states]),
            item_count=len(self._entries),
            version=VERSION if self._has_states else _VERSION_PLAIN,
            kind=self._kind,
            magic=MAGIC,
        )
        return [*self._chunks, footer]

    @property
    def footer_size(self) -> int:
        return ENTRY_SIZE * len(self._runs) + self._states_size + TAIL_SIZE

    @property
    def size(self) -> int:
        return self.body_size + self.footer_size


class _PendingRun:
    __slots__ = (
        "base_offset",
        "codecs",
        "crc",
        "flags",
        "last_offset",
        "leader_epoch",
        "length",
        "max_timestamp_ms",
        "position",
        "record_count",
        "state",
    )

    def __init__(self, position: int, state: RunStateBuilder | None = None) -> None:
        self.position = position
        self.state = state
        self.length = 0
        self.base_offset = self.last_offset = self.leader_epoch = -1
        self.max_timestamp_ms = -1
        self.record_count = self.codecs = self.flags = self.crc = 0

    def add(self, summary: Summary, batches: memoryview) -> None:
        if self.length == 0:
            self.base_offset = summary.base_offset
        else:
            assert summary.base_offset > self.last_offset, "batches must come in offset order"
        self.last_offset = summary.last_offset
        self.leader_epoch = summary.leader_epoch
        self.max_timestamp_ms = max(self.max_timestamp_ms, summary.max_timestamp_ms)
        self.record_count += summary.record_count
        self.codecs |= summary.codecs
        if summary.attributes & CONTROL:
            self.flags |= RunFlags.CONTROL
        if summary.attributes & TRANSACTIONAL:
            self.flags |= RunFlags.TRANSACTIONAL
        if self.state is not None:
            self.state.add(batches)
        self.crc = crc_of_batches(batches, summary.batch_count, self.crc)
        self.length += len(batches)

    def finish(self, topic_id: TopicId, partition: Partition) -> Run:
        return Run(
            topic_id=topic_id,
            partition=partition,
            leader_epoch=self.leader_epoch,
            base_offset=Offset(self.base_offset),
            last_offset=Offset(self.last_offset),
            position=self.position,
            length=self.length,
            max_timestamp_ms=self.max_timestamp_ms,
            record_count=self.record_count,
            codecs=self.codecs,
            flags=RunFlags(self.flags),
            crc=self.crc,
        )


def _encode_entry(run: Run) -> bytes:
    return _ENTRY.pack(
        run.topic_id,
        run.partition,
        run.leader_epoch,
        run.base_offset,
        run.last_offset,
        run.position,
        run.max_timestamp_ms,
        run.length,
        run.record_count,
        run.codecs,
        run.flags,
        0,
        run.crc,
    )


def footer_size(end_of_object: Buffer) -> int:
    """How many bytes at the end of an object hold its footer and tail; needs only its last TAIL_SIZE."""
    return parse_tail(end_of_object, magic=MAGIC).footer_size


def decode_footer(end_of_object: Buffer) -> Footer:
    """The index of an object, from at least its last `footer_size` bytes. Corrupted when anything is off."""
    tail = parse_tail(end_of_object, magic=MAGIC)
    footer = open_footer(end_of_object, tail, version_max=VERSION)
    index_length = tail.item_count * ENTRY_SIZE
    if index_length > tail.footer_length or (tail.version == _VERSION_PLAIN and index_length != tail.footer_length):
        raise Corrupted(f"{tail.item_count} entries do not make {tail.footer_length} bytes")
    try:
        return Footer(kind=Kind(tail.kind), runs=tuple(_decode_entries(footer[:index_length])))
    except ValueError as error:
        raise Corrupted(f"object of unknown kind {tail.kind}") from error


def decode_run_states(end_of_object: Buffer) -> tuple[RunState | None, ...]:
    """What each run of the index says of producers and transactions; None where only its batches do."""
    tail = parse_tail(end_of_object, magic=MAGIC)
    if tail.version == _VERSION_PLAIN:
        return (None,) * tail.item_count
    return decode_states(
        open_footer(end_of_object, tail, version_max=VERSION)[tail.item_count * ENTRY_SIZE :], tail.item_count
    )


def _decode_entries(footer: memoryview) -> Iterator[Run]:
    for fields in _ENTRY.iter_unpack(footer):
        yield Run(
            topic_id=TopicId(fields[0]),
            partition=Partition(fields[1]),
            leader_epoch=fields[2],
            base_offset=Offset(fields[3]),
            last_offset=Offset(fields[4]),
            position=fields[5],
            max_timestamp_ms=fields[6],
            length=fields[7],
            record_count=fields[8],
            codecs=fields[9],
            flags=RunFlags(fields[10]),
            crc=fields[12],
        )


def check_run(run: Run, data: Buffer) -> None:
    """Corrupted unless `data` is exactly the run's bytes."""
    if len(data) != run.length:
        raise Corrupted(f"run at {run.position}: {len(data)} bytes where {run.length} belong")
    if crc32c(data) != run.crc:
        raise Corrupted(f"run at {run.position} (offsets {run.base_offset}-{run.last_offset}) does not match its CRC")


class Salvage(msgspec.Struct, frozen=True, gc=False):
    """What of a damaged run is provably as it was: the batches in front of the damage, and those behind it."""

    front: list[memoryview]
    front_end: int
    """Offset behind the last of them; the run's base where there are none."""
    back: list[memoryview]
    back_start: int
    """Offset of the first of them; the run's end where there are none."""


def salvage(run: Run, data: Buffer) -> Salvage:
    """A batch's own CRC does not cover its base offset and its leader epoch. So one counts only if it has the run's epoch, and joins
    those before it without a gap, from the run's first offset on, or those behind it up to the run's last. Of a run with gaps, as
    key compaction leaves, or with two epochs, less is saved."""
    whole = [each for each in _batches_in(memoryview(data)) if has_valid_crc(each) and _is_of(run, each)]
    front: list[memoryview] = []
    front_end: int = run.base_offset
    for batch in whole:
        header = read_header(batch)
        if header.base_offset != front_end:
            break
        front.append(batch)
        front_end = header.end_offset
    back: list[memoryview] = []
    back_start: int = run.end_offset
    for batch in reversed(whole[len(front) :]):
        header = read_header(batch)
        if header.end_offset != back_start:
            break
        back.insert(0, batch)
        back_start = header.base_offset
    return Salvage(front, front_end, back, back_start)


def _batches_in(view: memoryview) -> Iterator[memoryview]:
    """As far as lengths can be followed. Behind one that is damaged nobody knows where batches begin."""
    position = 0
    while HEADER_SIZE <= (size := batch_size_at(view, position)) <= len(view) - position:
        yield view[position : position + size]
        position += size


def _is_of(run: Run, batch: memoryview) -> bool:
    header = read_header(batch)
    is_inside = run.base_offset <= header.base_offset < header.end_offset <= run.end_offset
    return is_inside and (header.magic, header.leader_epoch) == (BATCH_MAGIC, run.leader_epoch)


def iter_batches(data: Buffer) -> Iterator[memoryview]:
    """The batches in a run, or in several consecutive ones. Corrupted when they do not fill it exactly."""
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end:
        size = batch_size_at(view, position)
        if size < HEADER_SIZE or position + size > end:
            raise Corrupted(f"no whole batch at {position}, {end - position} bytes before the end")
        yield view[position : position + size]
        position += size
