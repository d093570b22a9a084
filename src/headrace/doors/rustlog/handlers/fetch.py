"""Fetch: records from an offset on, up to the high watermark.

- At or past the high watermark: no records, and `next_offset` is what was asked for. Below the log start: 416.
- `max_bytes` is soft: at least one record is returned if there is any. Batches without records are passed; a long row
  of them is answered with no records and the `next_offset` behind those that were read.
- `group_id` names whose lag this is and changes nothing else.
- The answer always fits one frame; a record that no frame can carry is 413, with its offset.
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.fetch import RecordsRead
from headrace.broker.topics import PartitionLog
from headrace.doors.rustlog.errors import answer_to, out_of_range, record_too_large
from headrace.doors.rustlog.fitting import ANSWER_WORDS, RECORD_WORDS, base64_size
from headrace.doors.rustlog.session import Session
from headrace.errors import HeadraceError, OffsetOutOfRange
from headrace.wire.rustlog import messages as m

RECORDS_PER_FETCH_MAX: Final = 50_000
_READ_BYTES_MIN: Final = 64 * 1024
_MICROSECONDS: Final = 1_000


def handle(request: m.Fetch, session: Session) -> m.Response | Deferred[m.Response]:
    partition = session.broker.topics.led_partition(request.topic, request.partition)
    if request.offset < partition.log_start:
        return out_of_range(request.offset, partition)
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
            response = out_of_range(request.offset, partition)
        except HeadraceError as error:
            response = answer_to(error, session)
        session.metrics.fetch_latency_ns.record(session.nanoseconds() - started_ns)
        if isinstance(response, m.FetchResponse):
            session.metrics.messages_fetched_total += len(response.records)
            session.positions.note(request.group_id, request.topic, request.partition, response.next_offset)
        answer.resolve(response)

    read.then(finish)
    return answer


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
