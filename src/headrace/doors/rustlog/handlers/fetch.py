"""Fetch: records from an offset on, up to the high watermark.

- At or past the high watermark: no records, and `next_offset` is what was asked for. Below the log start: 416.
- `max_bytes` is soft: at least one record is returned if there is any. Batches without records are passed; a long row
  of them is answered with no records and the `next_offset` behind those that were read.
- `group_id` names whose lag this is and changes nothing else.
- The answer always fits one frame; a record that no frame can carry is 413, with its offset.
- A partition that another broker leads is read there: the request is passed on.
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.fetch import RecordsRead
from headrace.broker.topics import PartitionLog
from headrace.doors.conversation import Outcome
from headrace.doors.rustlog.errors import answer_to, out_of_range, record_too_large
from headrace.doors.rustlog.fitting import ANSWER_WORDS, RECORD_WORDS, base64_size
from headrace.doors.rustlog.session import Session
from headrace.errors import HeadraceError, OffsetOutOfRange
from headrace.records.record import Record
from headrace.wire.rustlog import messages as m

RECORDS_PER_FETCH_MAX: Final = 50_000
_READ_BYTES_MIN: Final = 64 * 1024
_MICROSECONDS: Final = 1_000


def handle(request: m.Fetch, session: Session) -> Outcome[m.Response]:
    partition = session.broker.topics.partition(request.topic, request.partition)
    if partition.removed:
        return _read_elsewhere(request, partition, session)
    if request.offset < partition.log_start:
        return out_of_range(request.offset, partition.log_start, partition.high_watermark)
    if request.offset >= partition.high_watermark:
        session.positions.note(request.group_id, request.topic, request.partition, request.offset)
        return m.FetchResponse(records=[], next_offset=request.offset)
    return _read(request, partition, session)


def _read(request: m.Fetch, partition: PartitionLog, session: Session) -> Deferred[m.Response]:
    answer: Deferred[m.Response] = Deferred()
    frame_bytes_max = session.settings.frame_max_bytes
    started_ns = session.nanoseconds()
    read = session.broker.fetch.read_records(
        partition,
        request.offset,
        # Whole batches are read, so a tiny `max_bytes` would read one small batch after the other.
        max_bytes=max(min(request.max_bytes, frame_bytes_max), _READ_BYTES_MIN),
        max_records=RECORDS_PER_FETCH_MAX,
    )

    def finish(outcome: Deferred[RecordsRead]) -> None:
        try:
            response = _respond(outcome.result(), request, frame_bytes_max)
        except OffsetOutOfRange:
            response = out_of_range(request.offset, partition.log_start, partition.high_watermark)
        except HeadraceError as error:
            response = answer_to(error, session)
        answer.resolve(_noted(response, request, session, started_ns))

    read.then(finish)
    return answer


async def _read_elsewhere(request: m.Fetch, partition: PartitionLog, session: Session) -> m.Response:
    frame_bytes_max, started_ns = session.settings.frame_max_bytes, session.nanoseconds()
    found = await session.broker.forwarding.read(
        partition,
        request.offset,
        max_bytes=max(min(request.max_bytes, frame_bytes_max), _READ_BYTES_MIN),
        max_records=RECORDS_PER_FETCH_MAX,
    )
    if request.offset < found.log_start:
        return out_of_range(request.offset, found.log_start, found.high_watermark)
    read = RecordsRead([Record(*each) for each in found.records], found.next_offset)
    return _noted(_respond(read, request, frame_bytes_max), request, session, started_ns)


def _noted(response: m.Response, request: m.Fetch, session: Session, started_ns: int) -> m.Response:
    session.metrics.fetch_latency_ns.record(session.nanoseconds() - started_ns)
    if isinstance(response, m.FetchResponse):
        session.metrics.messages_fetched_total += len(response.records)
        session.positions.note(request.group_id, request.topic, request.partition, response.next_offset)
    return response


def _respond(read: RecordsRead, request: m.Fetch, frame_bytes_max: int) -> m.Response:
    picked: list[m.FetchedRecord] = []
    payload_bytes, frame_bytes = 0, ANSWER_WORDS
    for record in read.records:
        value = record.value or b""
        size = len(value)
        frame_bytes += base64_size(size) + RECORD_WORDS
        if frame_bytes > frame_bytes_max:
            if not picked:
                return record_too_large(record.offset, size)
            break
        if picked and payload_bytes + size > request.max_bytes:
            break
        payload_bytes += size
        picked.append(
            m.FetchedRecord(offset=record.offset, timestamp=max(record.timestamp_ms, 0) * _MICROSECONDS, payload=value)
        )
    next_offset = picked[-1].offset + 1 if len(picked) < len(read.records) else read.next_offset
    return m.FetchResponse(records=picked, next_offset=next_offset)
