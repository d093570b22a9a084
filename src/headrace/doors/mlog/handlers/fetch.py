"""Fetch, FetchBatch and FetchStream: records from an offset on.

- The offset is meant literally; consumers ask FetchOffset first. Nothing to read there is code 6.
- Consumers see what is below the high watermark; with `ReplicaNodeID` set, all up to the log's end.
- FetchBatch returns at most MaxCount entries (0 means 1), and fewer if they would not fit a frame.
- FetchStream answers once per record, waits at the high watermark, and ends with the connection.
"""

from collections.abc import AsyncIterator
from typing import Final

from headrace.broker.access.words import Operation
from headrace.broker.fetch import Isolation, ReadEnd, ReadSpec, RecordsRead
from headrace.broker.topics import PartitionLog
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.fitting import ENTRIES_WORDS, ENTRY_WORDS, base64_size
from headrace.doors.mlog.session import Session
from headrace.doors.rights import check_topic
from headrace.errors import TopicNotFound
from headrace.records.record import Record
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, ErrorCode

ENTRIES_PER_FETCH_MAX: Final = 100_000
READ_BYTES: Final = 1024 * 1024
_STREAM_WAIT_MS: Final = 10_000


async def fetch(request: m.FetchRequest, session: Session) -> m.Message:
    records = await _read(request.Topic, request.Offset, request.ReplicaNodeID, 1, session)
    session.metrics.records_fetched_total += 1
    return m.FetchResponse(Entry=_fitting_entries(records)[0])


async def fetch_batch(request: m.FetchBatchRequest, session: Session) -> m.Message:
    count = min(request.MaxCount or 1, ENTRIES_PER_FETCH_MAX)
    records = await _read(request.Topic, request.Offset, request.ReplicaNodeID, count, session)
    entries = _fitting_entries(records)
    session.metrics.records_fetched_total += len(entries)
    return m.FetchBatchResponse(Entries=tuple(entries))


async def fetch_stream(request: m.FetchStreamRequest, session: Session) -> AsyncIterator[m.Message]:
    partition = session.partition(request.Topic)
    offset = request.Offset
    if offset < partition.log_start or offset > partition.end_offset:
        raise nothing_at(offset, partition)
    while True:
        found = await _wait_for_records(partition, offset, session)
        for record in found.records:
            # A stream has no end, and rights have: looked at again whenever they change.
            check_topic(Operation.READ, request.Topic, session.guard)
            (entry,) = _fitting_entries([record])
            session.metrics.records_fetched_total += 1
            yield m.FetchStreamResponse(Entry=entry)
        offset = found.next_offset


async def _read(topic: str, offset: int, replica: str, count: int, session: Session) -> list[Record]:
    partition = session.partition(topic)
    end = partition.end_offset if replica else partition.high_watermark
    if not partition.log_start <= offset < end:
        raise nothing_at(offset, partition)
    # A single record needs no megabyte.
    max_bytes = min(FRAME_BYTES_MAX, READ_BYTES if count > 1 else 64 * 1024)
    below = ReadEnd.LOG_END if replica else ReadEnd.HIGH_WATERMARK
    found = await read_past_recordless(session, partition, offset, max_bytes=max_bytes, max_records=count, below=below)
    if not found.records:
        raise nothing_at(offset, partition)
    return found.records


async def read_past_recordless(
    session: Session, partition: PartitionLog, offset: int, *, max_bytes: int, max_records: int, below: ReadEnd
) -> RecordsRead:
    """Go on until there are records or nothing is left: mlog cannot tell a client to go on elsewhere."""
    while True:
        found = await session.broker.fetch.read_records(
            partition, offset, max_bytes=max_bytes, max_records=max_records, below=below
        )
        if found.records or found.next_offset == offset:
            return found
        offset = found.next_offset


def nothing_at(offset: int, partition: PartitionLog) -> Refusal:
    return Refusal(
        ErrorCode.READ_OFFSET,
        f"no data at offset {offset} of {partition.topic_name}: it has {partition.log_start} to "
        f"{partition.high_watermark}",
    )


def _fitting_entries(records: list[Record]) -> list[m.LogEntry]:
    """As many as one frame can carry, at least one."""
    entries: list[m.LogEntry] = []
    size = ENTRIES_WORDS
    for record in records:
        size += base64_size(len(record.value or b"")) + ENTRY_WORDS
        if size > FRAME_BYTES_MAX:
            if not entries:
                raise Refusal(
                    ErrorCode.READ_OFFSET,
                    f"record at offset {record.offset} has {len(record.value or b'')} bytes, "
                    f"more than a frame can carry; go on at {record.offset + 1}",
                )
            break
        entries.append(m.LogEntry(Offset=record.offset, Value=record.value))
    return entries


async def _wait_for_records(partition: PartitionLog, offset: int, session: Session) -> RecordsRead:
    """Some records from `offset` on, once there are any below the high watermark."""
    while True:
        if partition.removed:
            raise TopicNotFound(f"Topic '{partition.topic_name}' not found")
        if offset < partition.log_start:
            raise nothing_at(offset, partition)
        found = await read_past_recordless(
            session,
            partition,
            offset,
            max_bytes=READ_BYTES,
            max_records=ENTRIES_PER_FETCH_MAX,
            below=ReadEnd.HIGH_WATERMARK,
        )
        if found.records:
            return found
        offset = found.next_offset
        at_end = ReadSpec(partition, max(offset, partition.high_watermark), READ_BYTES)
        await session.broker.fetch.read(
            [at_end], min_bytes=1, max_bytes=READ_BYTES, wait_ms=_STREAM_WAIT_MS, isolation=Isolation.UNCOMMITTED
        )
