"""CreateTopic, DeleteTopic, ListTopics, FindTopicLeader, FindRaftLeader.

- ReplicaCount counts every copy, the leader's among them: 0 is code 9, more than there are nodes is 13.
- This node leads all topics and the metadata, so it is the answer to every question for a leader.
"""

from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.broker.topics import Topic
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.session import Session
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, ErrorCode

_NODE_COUNT: Final = 1
_TOPIC_CONFIG: Final = {"max.message.bytes": str(FRAME_BYTES_MAX + 1024 * 1024)}
"""A frame's worth of values must fit one batch; Kafka's default of 1 MiB would refuse them."""


async def create(request: m.CreateTopicRequest, session: Session) -> m.Message:
    if not request.Topic:
        raise Refusal(ErrorCode.TOPIC_NAME_REQUIRED, "topic name is required")
    if request.ReplicaCount < 1:
        raise Refusal(ErrorCode.REPLICA_COUNT_INVALID, "replica count must be 1 or more, the leader included")
    if request.ReplicaCount > _NODE_COUNT:
        raise Refusal(ErrorCode.NOT_ENOUGH_NODES, f"{request.ReplicaCount} replicas, but there is {_NODE_COUNT} node")
    if request.DesignatedLeaderNodeID not in ("", session.node_id):
        raise Refusal(ErrorCode.CANNOT_REACH_LEADER, f"cannot reach node {request.DesignatedLeaderNodeID!r}")
    topic = await session.broker.topics.create(request.Topic, partitions=1, config=_TOPIC_CONFIG)
    return m.CreateTopicResponse(Topic=topic.name, ReplicaNodeIds=(session.node_id,))


async def delete(request: m.DeleteTopicRequest, session: Session) -> m.Message:
    if not request.Topic:
        raise Refusal(ErrorCode.TOPIC_NAME_REQUIRED, "topic name is required")
    await session.broker.topics.delete(request.Topic)
    return m.DeleteTopicResponse(Topic=request.Topic)


def list_all(request: m.ListTopicsRequest, session: Session) -> m.Message:
    sees = session.guard.sees
    topics = [
        topic
        for topic in session.broker.topics.all()
        if not topic.is_internal and sees(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    ]
    return m.ListTopicsResponse(Topics=tuple(_info(topic, session.node_id) for topic in topics))


def find_topic_leader(request: m.FindTopicLeaderRequest, session: Session) -> m.Message:
    session.partition(request.Topic)
    return m.FindTopicLeaderResponse(LeaderAddr=session.address)


def find_raft_leader(request: m.FindRaftLeaderRequest, session: Session) -> m.Message:
    return m.FindRaftLeaderResponse(RaftLeaderAddr=session.address)


def _info(topic: Topic, node_id: str) -> m.TopicInfo:
    first = topic.partitions[0]
    replica = m.ReplicaInfo(NodeID=node_id, IsISR=True, LEO=first.end_offset)
    return m.TopicInfo(Name=topic.name, LeaderNodeID=node_id, LeaderEpoch=first.leader_epoch, Replicas=(replica,))
