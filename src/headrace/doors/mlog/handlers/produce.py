"""Produce and ProduceBatch: append values to a topic.

- AckNone answers at once with the offset and waits for nothing; AckLeader and AckAll answer when the records are kept.
- No value is code 5, as an unknown ack mode is 15; nothing is appended then.
- A value that would fit no answer to a Fetch is refused, too: a few bytes less than a frame of Produce can carry.
- Produces that arrive together share one batch and one flush.
"""

from collections.abc import Callable
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acks, Appended
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.fitting import SURELY_FITS, value_bytes_max
from headrace.doors.mlog.session import Session
from headrace.errors import HeadraceError, TooLarge
from headrace.records.record import NewRecord
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import AckMode, ErrorCode

_ACK_MODES: Final = frozenset(int(mode) for mode in AckMode)


def produce(request: m.ProduceRequest, session: Session) -> m.Message | Deferred[m.Message]:
    value = request.Value
    partition = session.writable_partition(request.Topic)
    _check(request.Acks, bool(value))
    _check_size(request.Topic, len(value))
    session.metrics.records_produced_total += 1
    if request.Acks == AckMode.NONE:
        return _append_now(session, request.Topic, (value,), _offset_of)
    return session.gathering.append(partition, [NewRecord(value=value)], size=len(value), reply=_offset_of)


def produce_batch(request: m.ProduceBatchRequest, session: Session) -> m.Message | Deferred[m.Message]:
    values = request.Values
    partition = session.writable_partition(request.Topic)
    _check(request.Acks, bool(values) and all(values))
    _check_size(request.Topic, max(map(len, values)))
    count = len(values)
    session.metrics.records_produced_total += count

    def reply(base_offset: int) -> m.Message:
        return m.ProduceBatchResponse(BaseOffset=base_offset, LastOffset=base_offset + count - 1, Count=count)

    if request.Acks == AckMode.NONE:
        return _append_now(session, request.Topic, values, reply)
    records = [NewRecord(value=value) for value in values]
    return session.gathering.append(partition, records, size=sum(map(len, values)), reply=reply)


def _check(acks: int, has_values: bool) -> None:
    if acks not in _ACK_MODES:
        raise Refusal(ErrorCode.INVALID_ACK_MODE, f"invalid ack mode {acks}")
    if not has_values:
        raise Refusal(ErrorCode.VALUES_REQUIRED, "values are required")


def _check_size(topic: str, size: int) -> None:
    if size > SURELY_FITS and size > (limit := value_bytes_max(topic)):
        raise TooLarge(f"value of {size} bytes; {limit} is the most that a frame can bring back")


def _append_now(
    session: Session, topic: str, values: tuple[bytes, ...], reply: Callable[[int], m.Message]
) -> m.Message | Deferred[m.Message]:
    """At once, but where a Wasm module has to see the values first."""
    # What was sent before must come before, also when it still waits to be gathered.
    partition = session.partition(topic)
    session.gathering.flush(partition)
    records = [NewRecord(value=value) for value in values]
    appending = session.broker.produce.append_records(partition, records, acks=Acks.NONE)
    if appending.is_done:
        return reply(appending.result().base_offset)
    answer: Deferred[m.Message] = Deferred()

    def landed(outcome: Deferred[Appended]) -> None:
        try:
            answer.resolve(reply(outcome.result().base_offset))
        except HeadraceError as error:
            answer.reject(error)

    appending.then(landed)
    return answer


def _offset_of(base_offset: int) -> m.Message:
    return m.ProduceResponse(Offset=base_offset)
