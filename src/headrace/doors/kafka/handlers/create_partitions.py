"""CreatePartitions, v0-v3. Topics only grow; where they are placed is not for the client to say on one node."""

from headrace.broker.ownership import check_client_may
from headrace.broker.topics import check_growth
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, Invalid
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(request: CreatePartitionsRequest, version: int, session: Session) -> CreatePartitionsResponse:
    names = [topic.name for topic in request.topics]
    results = []
    for topic in request.topics:
        if names.count(topic.name) > 1:
            results.append(_refused(topic, ErrorCode.INVALID_REQUEST, "named more than once in one request"))
        else:
            results.append(await _grow(topic, session, is_dry=request.validate_only))
    return CreatePartitionsResponse(results=results)


async def _grow(topic: CreatePartitionsTopic, session: Session, *, is_dry: bool) -> CreatePartitionsTopicResult:
    found = session.broker.topics.find(topic.name)
    if found is None:
        return _refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    try:
        check_client_may("grow", topic.name)
    except HeadraceError as error:
        return _refused(topic, code_of(error), str(error))
    try:
        check_growth(found, topic.count)
    except Invalid as error:
        return _refused(topic, ErrorCode.INVALID_PARTITIONS, str(error))
    wrong = _wrong_assignment(topic, topic.count - len(found.partitions), session)
    if wrong is not None:
        return _refused(topic, ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    if not is_dry:
        try:
            await session.broker.topics.add_partitions(topic.name, topic.count)
        except HeadraceError as error:
            return _refused(topic, code_of(error), str(error))
    return CreatePartitionsTopicResult(name=topic.name)


def _wrong_assignment(topic: CreatePartitionsTopic, added: int, session: Session) -> str | None:
    if topic.assignments is None:
        return None
    if len(topic.assignments) != added:
        return f"{added} partitions are added, {len(topic.assignments)} are assigned"
    node = session.broker.identity.broker_id
    if any(each.broker_ids != [node] for each in topic.assignments):
        return f"the only broker is {node}"
    return None


def _refused(topic: CreatePartitionsTopic, code: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
