"""Produce: append decoded records, in order, to one partition.

- At most 1000 records per request, each within the record limit and no larger than a Fetch can bring back; otherwise nothing
  is appended.
- Answered when the records are kept; produces that arrive together share one batch and one flush.
- No records at all: nothing is appended, and the base offset is where the next record would go.
- A partition that another broker leads is written there: the request is passed on.
"""

from headrace.broker.deferred import Deferred
from headrace.broker.topics import PartitionLog
from headrace.doors.conversation import Outcome
from headrace.doors.rustlog.errors import refused
from headrace.doors.rustlog.session import Session
from headrace.errors import TooLarge
from headrace.records.record import NewRecord
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codes import RECORDS_PER_PRODUCE_MAX
from headrace.wire.rustlog.names import is_addressable


def handle(request: m.Produce, session: Session) -> Outcome[m.Response]:
    records = request.records
    count = len(records)
    if count > RECORDS_PER_PRODUCE_MAX:
        return refused(f"{count} records; at most {RECORDS_PER_PRODUCE_MAX} per request", "too_many_records")
    topics = session.broker.topics
    topic = topics.find(request.topic)
    if topic is None and not is_addressable(request.topic):
        return refused("topic must be 1 to 255 letters, digits, '_' or '-'", "invalid_topic_name")
    partition = topics.partition(request.topic, request.partition)
    if not records:
        return _describe_end(partition, session)
    return _append(partition, records, session)


async def _describe_end(partition: PartitionLog, session: Session) -> m.Response:
    broker, index = session.broker, partition.index
    facts = await broker.forwarding.facts_of(broker.topics.get(partition.topic_name), [index])
    return m.ProduceResponse(base_offset=facts[index].end_offset, record_count=0)


def _append(partition: PartitionLog, records: list[bytes], session: Session) -> Deferred[m.Response]:
    limit = session.record_bytes_max
    size = 0
    for record in records:
        if len(record) > limit:
            raise TooLarge(f"record of {len(record)} bytes, limit {limit}")
        size += len(record)
    count = len(records)
    metrics, started_ns = session.metrics, session.nanoseconds()

    def reply(base_offset: int) -> m.Response:
        metrics.messages_produced_total += count
        metrics.produce_latency_ns.record(session.nanoseconds() - started_ns)
        return m.ProduceResponse(base_offset=base_offset, record_count=count)

    new_records = [NewRecord(value=record) for record in records]
    return session.gathering.append(partition, new_records, size=size, reply=reply)
