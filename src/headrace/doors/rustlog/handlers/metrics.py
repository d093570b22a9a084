"""MetricsFetch and Ping: how the broker is doing, and that it is there.

The numbers are given three times over: by name, as lag per group, and as one Prometheus text.
"""

from typing import Final

from headrace.doors.rustlog.metrics import RustLogMetrics
from headrace.doors.rustlog.session import Session
from headrace.errors import NotFound
from headrace.wire.rustlog import messages as m

_ELSEWHERE: Final = {
    "segments_deleted_total": "headrace_tier_retained_segments_total",
    "bytes_reclaimed_total": "headrace_tier_retained_bytes_total",
}
"""Numbers that RustLog asks for and another part of the node counts."""


def fetch(request: m.MetricsFetch, session: Session) -> m.Response:
    return m.MetricsFetchResponse(
        metrics=numbers(session), consumer_lag=consumer_lag(session), text=session.broker.metrics.render().decode()
    )


def ping(request: m.Ping, session: Session) -> m.Response:
    return m.Pong()


def numbers(session: Session) -> dict[str, float]:
    """The door's own under the names RustLog knows, and every other number of the node under its own."""
    shown = session.broker.metrics.snapshot()
    prefix = RustLogMetrics.PREFIX
    own = {name.removeprefix(prefix): value for name, value in shown.items() if name.startswith(prefix)}
    borrowed = {name: shown[source] for name, source in _ELSEWHERE.items() if source in shown}
    return shown | own | borrowed


def consumer_lag(session: Session) -> list[m.ConsumerLag]:
    lags = []
    for (group, topic, index), next_offset in session.positions.all():
        committed = session.broker.offsets.committed(group, topic, index)
        try:
            partition = session.broker.topics.partition(topic, index)
        except NotFound:
            continue
        position = next_offset if committed is None else committed.offset
        lag = max(0, partition.high_watermark - position)
        lags.append(m.ConsumerLag(group=group, topic=topic, partition=index, lag=lag))
    return lags
