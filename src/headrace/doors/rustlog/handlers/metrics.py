"""MetricsFetch and Ping: how the broker is doing, and that it is there.

The numbers are given three times over: by name, as lag per group, and as one Prometheus text.
"""

from itertools import islice
from typing import Final

from headrace.doors.rustlog.metrics import RustLogMetrics
from headrace.doors.rustlog.session import Session
from headrace.errors import NotFound
from headrace.wire.rustlog import messages as m

LAGS_SHOWN_MAX: Final = 2_000
"""The answer must fit a frame, and not keep the loop, however many groups there are. `/metrics` has all of them."""
_ELSEWHERE: Final = {
    "segments_deleted_total": "headrace_tier_retained_segments_total",
    "bytes_reclaimed_total": "headrace_tier_retained_bytes_total",
}
"""Numbers that RustLog asks for and another part of the node counts."""


def fetch(request: m.MetricsFetch, session: Session) -> m.Response:
    return m.MetricsFetchResponse(
        metrics=numbers(session),
        consumer_lag=consumer_lag(session),
        text=session.broker.metrics.render(samples_max=LAGS_SHOWN_MAX).decode(),
    )


def ping(request: m.Ping, session: Session) -> m.Response:
    return m.Pong()


def numbers(session: Session) -> dict[str, float]:
    """Every number of the node. Those that only this door counts appear under RustLog's names for them, too."""
    shown = session.broker.metrics.snapshot()
    prefix = RustLogMetrics.PREFIX
    own = {name.removeprefix(prefix): value for name, value in shown.items() if name.startswith(prefix)}
    borrowed = {name: shown[source] for name, source in _ELSEWHERE.items() if source in shown}
    return own | shown | borrowed


def consumer_lag(session: Session) -> list[m.ConsumerLag]:
    """How far each group is behind: by its commit, through whatever door, or else by its last fetch here."""
    offsets = session.broker.offsets
    positions = dict(session.positions.all())
    for group in islice(offsets.groups(), LAGS_SHOWN_MAX):
        positions |= {(group, *place): committed.offset for place, committed in offsets.all_of(group).items()}
    lags = []
    for (group, topic, index), next_offset in islice(positions.items(), LAGS_SHOWN_MAX):
        try:
            partition = session.broker.topics.partition(topic, index)
        except NotFound:
            continue
        lag = max(0, partition.high_watermark - next_offset)
        lags.append(m.ConsumerLag(group=group, topic=topic, partition=index, lag=lag))
    return lags
