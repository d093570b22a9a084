"""What a run says of its producers and transactions, so that whoever takes a partition over need not read its records.

Rows follow the index in the footer of objects of version 2 (`docs/formats/object.md`). Applied in the order of the runs, to what is known
of the records in front of them, they give the same as reading every batch: a producer's epoch and its last batches, and which
transactions began and ended where.

A run whose rows would take too much of it has none: its batches are as quickly read as they.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.errors import Corrupted
from headrace.limits import PRODUCER_BATCHES_KEPT
from headrace.records.batch import (
    CONTROL,
    LENGTH_OVERHEAD,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)
from headrace.records.builder import coordinator_epoch_of, is_commit_marker
from headrace.records.record import read_batch_records

_COUNTS: Final = struct.Struct(">II")
_PRODUCER: Final = struct.Struct(">qhBxiq")
_SENT: Final = struct.Struct(">iiq")
_TRANSACTION: Final = struct.Struct(">qqB7x")
_UNTOLD: Final = 0xFFFF_FFFF
_ROWS_SHARE: Final = 16
_ROWS_BYTES_MIN: Final = 512
"""Rows of a run take at most this much, or a sixteenth of the run. Objects of many producers that write little would be all footer."""

BEGUN: Final = 0
COMMITTED: Final = 1
ABORTED: Final = 2


class SentRow(msgspec.Struct, frozen=True, gc=False):
    """A batch of a producer."""

    base_sequence: int
    last_offset_delta: int
    base_offset: int


class ProducerRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One producer in a run: its newest epoch and the last batches of that."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    """Of its last marker; -1 where the run has none."""
    last_timestamp_ms: int
    sent: tuple[SentRow, ...]


class TransactionRow(msgspec.Struct, frozen=True, gc=False):
    """A transactional batch where the run shows no earlier one of that transaction, or a marker."""

    producer_id: int
    offset: int
    kind: int
    """BEGUN, COMMITTED or ABORTED."""


class RunState(msgspec.Struct, frozen=True, gc=False):
    producers: tuple[ProducerRow, ...] = ()
    transactions: tuple[TransactionRow, ...] = ()
    """In offset order."""


class RunStateBuilder:
    """Gathers what the batches of one run say."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._begun: set[int] = set()
        """Producers whose transaction has a row since their last marker."""
        self._transactions: list[TransactionRow] = []

    def add(self, batches: Buffer) -> None:
        """Whole batches, back to back."""
        position, end = 0, len(batches)
        while position < end:
            header = read_header(batches, position)
            if header.producer_id != NO_PRODUCER:
                self._note(header, batches, position)
            position += header.batch_length + LENGTH_OVERHEAD

    def _note(self, header: BatchHeader, batches: Buffer, position: int) -> None:
        producer_id = header.producer_id
        known = self._producers.get(producer_id)
        if known is None or header.producer_epoch > known.epoch:
            coordinator_epoch = known.coordinator_epoch if known is not None else -1
            known = self._producers[producer_id] = _Producer(header.producer_epoch, coordinator_epoch)
        known.last_timestamp_ms = header.max_timestamp_ms
        attributes = header.attributes
        if attributes & CONTROL:
            known.coordinator_epoch = self._end(header, memoryview(batches)[position:])
            return
        known.sent.append((header.base_sequence, header.last_offset_delta, header.base_offset))
        if attributes & TRANSACTIONAL and producer_id not in self._begun:
            self._begun.add(producer_id)
            self._transactions.append(TransactionRow(producer_id, header.base_offset, BEGUN))

    def _end(self, header: BatchHeader, batch: Buffer) -> int:
        marker = next(read_batch_records(batch, header))
        kind = COMMITTED if is_commit_marker(marker.key or b"") else ABORTED
        self._begun.discard(header.producer_id)
        self._transactions.append(TransactionRow(header.producer_id, header.base_offset, kind))
        return coordinator_epoch_of(marker.value or b"")

    def finish(self) -> RunState:
        producers = tuple(
            ProducerRow(
                producer_id=producer_id,
                epoch=each.epoch,
                coordinator_epoch=each.coordinator_epoch,
                last_timestamp_ms=each.last_timestamp_ms,
                sent=tuple([SentRow(*sent) for sent in each.sent]),
            )
            for producer_id, each in self._producers.items()
        )
        return RunState(producers, tuple(self._transactions))


def state_of(batches: Iterable[Buffer]) -> RunState:
    """What these batches, or stretches of them, say: for a run that has no rows."""
    builder = RunStateBuilder()
    for each in batches:
        builder.add(each)
    return builder.finish()


def encode_state(state: RunState, run_length: int) -> bytes:
    """The rows of one run of so many bytes; that there are none where they would be too many."""
    parts = [_COUNTS.pack(len(state.producers), len(state.transactions))]
    for each in state.producers:
        parts.append(
            _PRODUCER.pack(each.producer_id, each.epoch, len(each.sent), each.coordinator_epoch, each.last_timestamp_ms)
        )
        parts += [_SENT.pack(sent.base_sequence, sent.last_offset_delta, sent.base_offset) for sent in each.sent]
    parts += [_TRANSACTION.pack(each.producer_id, each.offset, each.kind) for each in state.transactions]
    rows = b"".join(parts)
    if len(rows) > max(_ROWS_BYTES_MIN, run_length // _ROWS_SHARE):
        return _COUNTS.pack(_UNTOLD, 0)
    return rows


def decode_states(rows: Buffer, run_count: int) -> tuple[RunState | None, ...]:
    """Of each run, in the order of the index; None where its batches have to be read. `Corrupted` when anything is off."""
    reader = _Reader(memoryview(rows))
    try:
        found = tuple([reader.state() for _ in range(run_count)])
    except struct.error as error:
        raise Corrupted(f"the rows of {run_count} runs are cut short at {reader.position}") from error
    if reader.position != len(rows):
        raise Corrupted(f"{len(rows) - reader.position} bytes behind the rows of the last run")
    return found


class _Reader:
    def __init__(self, rows: memoryview) -> None:
        self._rows = rows
        self.position = 0

    def state(self) -> RunState | None:
        producer_count, transaction_count = self._take(_COUNTS)
        if producer_count == _UNTOLD:
            return None
        room = len(self._rows) - self.position
        if producer_count * _PRODUCER.size + transaction_count * _TRANSACTION.size > room:
            raise Corrupted(f"{producer_count} producers and {transaction_count} transactions in {room} bytes")
        producers = tuple([self._producer() for _ in range(producer_count)])
        return RunState(producers, tuple(self._transactions(transaction_count)))

    def _producer(self) -> ProducerRow:
        producer_id, epoch, sent_count, coordinator_epoch, last_timestamp_ms = self._take(_PRODUCER)
        return ProducerRow(
            producer_id=producer_id,
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            last_timestamp_ms=last_timestamp_ms,
            sent=tuple([SentRow(*self._take(_SENT)) for _ in range(sent_count)]),
        )

    def _transactions(self, count: int) -> Iterator[TransactionRow]:
        for _ in range(count):
            row = TransactionRow(*self._take(_TRANSACTION))
            if row.kind > ABORTED:
                raise Corrupted(f"transaction row of unknown kind {row.kind}")
            yield row

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        fields = layout.unpack_from(self._rows, self.position)
        self.position += layout.size
        return fields


class _Producer:
    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp_ms", "sent")

    def __init__(self, epoch: int, coordinator_epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = -1
        self.sent: deque[tuple[int, int, int]] = deque(maxlen=PRODUCER_BATCHES_KEPT)
