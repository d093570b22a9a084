"""Every mlog request, who serves it, and the right its client needs: the table is the support matrix."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headrace.broker.access.words import Operation, Resource
from headrace.doors.conversation import Outcome
from headrace.doors.mlog.handlers import fetch, offsets, produce, replicate, topics
from headrace.doors.mlog.session import CONSUMER_ID_DEFAULT, Session
from headrace.doors.rights import Need
from headrace.wire.mlog import messages as m

# Any: each handler takes its own request type; the key of its row is that type.
Handler = Callable[[Any, Session], Outcome[m.Message]]

_WRITE: Final = (Need(Operation.WRITE, Resource.TOPIC, "Topic"),)
_READ: Final = (Need(Operation.READ, Resource.TOPIC, "Topic"),)
_AS_REPLICA: Final = (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
"""For what one node says to another: it is shown more than a consumer, and believed more."""


class Route(msgspec.Struct, frozen=True):
    handle: Handler
    needs: tuple[Need, ...]


ROUTES: Final[Mapping[type[m.Message], Route]] = {
    m.ReplicateRequest: Route(replicate.stream, _AS_REPLICA),
    m.ProduceRequest: Route(produce.produce, _WRITE),
    m.ProduceBatchRequest: Route(produce.produce_batch, _WRITE),
    m.FetchRequest: Route(fetch.fetch, _READ),
    m.FetchBatchRequest: Route(fetch.fetch_batch, _READ),
    m.FetchStreamRequest: Route(fetch.fetch_stream, _READ),
    m.CommitOffsetRequest: Route(
        offsets.commit, (Need(Operation.READ, Resource.GROUP, "Id", CONSUMER_ID_DEFAULT), *_READ)
    ),
    m.FetchOffsetRequest: Route(
        offsets.fetch,
        (
            Need(Operation.DESCRIBE, Resource.GROUP, "Id", CONSUMER_ID_DEFAULT),
            Need(Operation.DESCRIBE, Resource.TOPIC, "Topic"),
        ),
    ),
    m.CreateTopicRequest: Route(topics.create, (Need(Operation.CREATE, Resource.TOPIC, "Topic"),)),
    m.DeleteTopicRequest: Route(topics.delete, (Need(Operation.DELETE, Resource.TOPIC, "Topic"),)),
    m.FindTopicLeaderRequest: Route(topics.find_topic_leader, (Need(Operation.DESCRIBE, Resource.TOPIC, "Topic"),)),
    m.FindRaftLeaderRequest: Route(topics.find_raft_leader, ()),
    m.ListTopicsRequest: Route(topics.list_all, ()),
    m.ApplyIsrUpdateEventRequest: Route(replicate.apply_isr_update, _AS_REPLICA),
}
"""ListTopics needs no right: it shows what its client may describe."""


def needs_of(request: m.Message) -> tuple[Need, ...]:
    """Those of its row, and more where it says that it comes from a replica: those read what is not durable yet."""
    needs = ROUTES[type(request)].needs
    return (*needs, *_AS_REPLICA) if getattr(request, "ReplicaNodeID", "") and needs is _READ else needs
