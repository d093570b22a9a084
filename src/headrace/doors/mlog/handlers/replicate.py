"""ReplicateStream and ApplyIsrUpdateEvent: what one node says to another.

- A stream sends the log from an offset to the end it has now, as replication batches; the last answer says so and
  names the leader's end. Values only: that is all the public batch can carry.
- In a cluster of one the in-sync set is the leader, and nothing else is true of it.
"""

from collections.abc import AsyncIterator
from typing import Final

from headrace.broker.fetch import ReadEnd
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.fitting import chunk_bytes_max
from headrace.doors.mlog.handlers.fetch import READ_BYTES, nothing_at, read_past_recordless
from headrace.doors.mlog.session import Session
from headrace.records.record import Record
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import ErrorCode
from headrace.wire.mlog.replication_batch import HEADER, RECORD_HEADER, ReplicationRecord, encode_replication_batch

BATCH_SIZE_DEFAULT: Final = 5_000


async def stream(request: m.ReplicateRequest, session: Session) -> AsyncIterator[m.Message]:
    partition = session.partition(request.Topic)
    offset, end = request.Offset, partition.end_offset
    if not partition.log_start <= offset <= end:
        raise nothing_at(offset, partition)
    bytes_max = chunk_bytes_max(request.Topic)
    count = min(request.BatchSize or BATCH_SIZE_DEFAULT, BATCH_SIZE_DEFAULT)
    while offset < end:
        found = await read_past_recordless(
            session, partition, offset, max_bytes=READ_BYTES, max_records=count, below=ReadEnd.LOG_END
        )
        chunk = _fitting([record for record in found.records if record.offset < end], bytes_max)
        if not chunk:
            break
        session.metrics.records_fetched_total += len(chunk)
        yield m.ReplicateResponse(Topic=request.Topic, RawChunk=encode_replication_batch(chunk) or b"")
        offset = chunk[-1].offset + 1
    yield m.ReplicateResponse(Topic=request.Topic, EndOfStream=True, LeaderLEO=end)


def _fitting(records: list[Record], bytes_max: int) -> list[ReplicationRecord]:
    chunk: list[ReplicationRecord] = []
    size = HEADER.size
    for record in records:
        value = record.value or b""
        size += len(value) + RECORD_HEADER.size
        if size > bytes_max:
            if not chunk:
                raise Refusal(
                    ErrorCode.READ_OFFSET,
                    f"record at offset {record.offset} has {len(value)} bytes, more than a frame can carry",
                )
            break
        chunk.append(ReplicationRecord(record.offset, value))
    return chunk


def apply_isr_update(request: m.ApplyIsrUpdateEventRequest, session: Session) -> m.Message:
    session.partition(request.Topic)
    if request.ReplicaNodeID != session.node_id:
        raise Refusal(ErrorCode.UNKNOWN, f"{request.ReplicaNodeID!r} is no replica of {request.Topic}")
    if not request.Isr:
        raise Refusal(ErrorCode.UNKNOWN, f"{session.node_id} leads {request.Topic}: a leader is always in sync")
    return m.ApplyIsrUpdateEventResponse()
