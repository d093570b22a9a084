"""Every RustLog request, who serves it, and the right its client needs: the table is the support matrix."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headrace.broker.access.words import Operation, Resource
from headrace.doors.conversation import Outcome
from headrace.doors.rights import Need
from headrace.doors.rustlog.handlers import fetch, metrics, offsets, produce, topics
from headrace.doors.rustlog.session import Session
from headrace.wire.rustlog import messages as m

# Any: each handler takes its own request type; the key of its row is that type.
Handler = Callable[[Any, Session], Outcome[m.Response]]


class Route(msgspec.Struct, frozen=True):
    handle: Handler
    needs: tuple[Need, ...]
    if_not_found: m.Response | None = None
    """What is answered of a topic that there is not, where that is no error."""


ROUTES: Final[Mapping[type[m.Message], Route]] = {
    m.Produce: Route(produce.handle, (Need(Operation.WRITE, Resource.TOPIC, "topic"),)),
    m.Fetch: Route(fetch.handle, (Need(Operation.READ, Resource.TOPIC, "topic"),)),
    m.OffsetCommit: Route(
        offsets.commit,
        (Need(Operation.READ, Resource.GROUP, "group"), Need(Operation.READ, Resource.TOPIC, "topic")),
        m.OffsetCommitResponse(success=False),
    ),
    m.OffsetFetch: Route(
        offsets.fetch,
        (Need(Operation.DESCRIBE, Resource.GROUP, "group"), Need(Operation.DESCRIBE, Resource.TOPIC, "topic")),
        m.OffsetFetchResponse(offset=None),
    ),
    m.CreateTopic: Route(topics.create, (Need(Operation.CREATE, Resource.TOPIC, "topic"),)),
    m.ListTopics: Route(topics.list_all, ()),
    m.DescribeTopic: Route(topics.describe, (Need(Operation.DESCRIBE, Resource.TOPIC, "topic"),)),
    m.DescribePartition: Route(topics.describe_partition, (Need(Operation.DESCRIBE, Resource.TOPIC, "topic"),)),
    m.MetricsFetch: Route(metrics.fetch, (Need(Operation.DESCRIBE, Resource.CLUSTER),)),
    m.Ping: Route(metrics.ping, ()),
}
"""ListTopics needs no right: it shows what its client may describe."""
