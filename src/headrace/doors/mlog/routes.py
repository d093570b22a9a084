"""Every mlog request and who serves it: the table is the support matrix."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.doors.conversation import Outcome
from headrace.doors.mlog.handlers import fetch, offsets, produce, replicate, topics
from headrace.doors.mlog.session import Session
from headrace.wire.mlog import messages as m

# Any: each handler takes its own request type; the key of its row is that type.
Handler = Callable[[Any, Session], Outcome[m.Message]]

ROUTES: Final[Mapping[type[m.Message], Handler]] = {
    m.ReplicateRequest: replicate.stream,
    m.ProduceRequest: produce.produce,
    m.ProduceBatchRequest: produce.produce_batch,
    m.FetchRequest: fetch.fetch,
    m.FetchBatchRequest: fetch.fetch_batch,
    m.FetchStreamRequest: fetch.fetch_stream,
    m.CommitOffsetRequest: offsets.commit,
    m.FetchOffsetRequest: offsets.fetch,
    m.CreateTopicRequest: topics.create,
    m.DeleteTopicRequest: topics.delete,
    m.FindTopicLeaderRequest: topics.find_topic_leader,
    m.FindRaftLeaderRequest: topics.find_raft_leader,
    m.ListTopicsRequest: topics.list_all,
    m.ApplyIsrUpdateEventRequest: replicate.apply_isr_update,
}
