"""CreateTopic, DeleteTopic, ListTopics, FindTopicLeader, FindRaftLeader.

- ReplicaCount counts every copy, the leader's among them: 0 is code 9, more than one is 13, for records are in object storage and not on
  several nodes.
- Any node takes changes of metadata, so each is the answer to the question for Raft's leader.
- Of a topic that another node leads, LEO is not known here: -1.
"""

from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.broker.topics import Topic
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.session import Session
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, ErrorCode

_REPLICAS_MAX: Final = 1
_NOT_KNOWN: Final = -1
_TOPIC_CONFIG: Final = {"max.message.bytes": str(FRAME_BYTES_MAX + 1024 * 1024)}
"""A frame's worth of values must fit one batch; Kafka's default of 1 MiB would refuse them."""


async def create(request: m.CreateTopicRequest, session: Session) -> m.Message:
    if not request.Topic:
        raise Refusal(ErrorCode.TOPIC_NAME_REQUIRED, "topic name is required")
    if request.ReplicaCount < 1:
        raise Refusal(ErrorCode.REPLICA_COUNT_INVALID, "replica count must be 1 or more, the leader included")
    if request.ReplicaCount > _REPLICAS_MAX:
        raise Refusal(ErrorCode.NOT_ENOUGH_NODES, f"{request.ReplicaCount} replicas, but one node keeps a topic")
    designated = request.DesignatedLeaderNodeID or None
    if designated is not None and session.address_of(designated) is None:
        raise Refusal(ErrorCode.CANNOT_REACH_LEADER, f"cannot reach node {designated!r}")
    topic = await session.broker.topics.create(request.Topic, partitions=1, config=_TOPIC_CONFIG, leader=designated)
    return m.CreateTopicResponse(Topic=topic.name, ReplicaNodeIds=(topic.leaders[0],))


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
    return m.ListTopicsResponse(Topics=tuple(_info(topic, session) for topic in topics))


def find_topic_leader(request: m.FindTopicLeaderRequest, session: Session) -> m.Message:
    leader = session.topic(request.Topic).leaders[0]
    address = session.address_of(leader)
    if address is None:
        raise Refusal(
            ErrorCode.CANNOT_REACH_LEADER, f"{request.Topic} is led by {leader or 'nobody'}, which is not there"
        )
    return m.FindTopicLeaderResponse(LeaderAddr=address)


def find_raft_leader(request: m.FindRaftLeaderRequest, session: Session) -> m.Message:
    return m.FindRaftLeaderResponse(RaftLeaderAddr=session.address)


def _info(topic: Topic, session: Session) -> m.TopicInfo:
    first, leader = topic.partitions[0], topic.leaders[0]
    replica = m.ReplicaInfo(
        NodeID=leader,
        IsISR=session.address_of(leader) is not None,
        LEO=_NOT_KNOWN if first.removed else first.end_offset,
    )
    return m.TopicInfo(Name=topic.name, LeaderNodeID=leader, LeaderEpoch=first.leader_epoch, Replicas=(replica,))
