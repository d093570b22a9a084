"""Every RustLog request and who serves it: the table is the support matrix."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.doors.conversation import Outcome
from headrace.doors.rustlog.handlers import fetch, metrics, offsets, produce, topics
from headrace.doors.rustlog.session import Session
from headrace.wire.rustlog import messages as m

# Any: each handler takes its own request type; the key of its row is that type.
Handler = Callable[[Any, Session], Outcome[m.Response]]

ROUTES: Final[Mapping[type[m.Message], Handler]] = {
    m.Produce: produce.handle,
    m.Fetch: fetch.handle,
    m.OffsetCommit: offsets.commit,
    m.OffsetFetch: offsets.fetch,
    m.CreateTopic: topics.create,
    m.ListTopics: topics.list_all,
    m.DescribeTopic: topics.describe,
    m.DescribePartition: topics.describe_partition,
    m.MetricsFetch: metrics.fetch,
    m.Ping: metrics.ping,
}
