"""DeleteTopics, v1-v6; by id too in v6. The topics of coordinators stay."""

from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.ids import NO_TOPIC_ID
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.kafka.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse


async def handle(request: DeleteTopicsRequest, version: int, session: Session) -> DeleteTopicsResponse:
    asked = request.topics if version >= 6 else [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[await _delete(topic, session) for topic in asked])


async def _delete(asked: DeleteTopicState, session: Session) -> DeletableTopicResult:
    topics = session.broker.topics
    if (asked.name is None) == (asked.topic_id == NO_TOPIC_ID):
        return DeletableTopicResult(
            name=asked.name,
            topic_id=asked.topic_id,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="give either a name or an id, and not both",
        )
    topic = topics.find(asked.name) if asked.name is not None else topics.find_by_id(asked.topic_id)
    if topic is None:
        by_id = asked.name is None
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=code, error_message="no such topic"
        )
    try:
        await topics.delete(topic.name)
    except HeadraceError as error:
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.id, error_code=code_of(error), error_message=str(error)
        )
    session.door.topic_rows.forget(topic.id)
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)
