"""CreateTopics, v2-v7.

- A topic that exists is TOPIC_ALREADY_EXISTS, exactly (trap 44). `a.b` beside `a_b` is INVALID_TOPIC_EXCEPTION. Partition count -1 is the door's default.
- Replication factor -1 and 1 are accepted: one WAL copy is what there is. More is INVALID_REPLICATION_FACTOR.
- The coordinators' topics may be made by hand, before they are needed: with as many partitions as the client likes,
  and with the configs their coordinator needs. `__cluster_metadata` is refused, as by Kafka.
- `validate_only` checks everything and changes nothing.
"""

from collections import Counter
from typing import Final

from headrace.broker.ownership import is_internal
from headrace.broker.topic_names import check_new_name
from headrace.broker.topics import check_replication_factor
from headrace.doors.kafka.configs import described_overrides
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import AlreadyExists, HeadraceError, Invalid
from headrace.limits import PARTITIONS_PER_TOPIC_MAX
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

_CLUSTER_METADATA: Final = "__cluster_metadata"


async def handle(request: CreateTopicsRequest, version: int, session: Session) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if counts[topic.name] > 1:
            results.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, "named more than once in one request"))
        else:
            results.append(await _create(topic, session, is_dry=request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(topic: CreatableTopic, session: Session, *, is_dry: bool) -> CreatableTopicResult:
    try:
        check_new_name(topic.name, session.broker.topics)
    except HeadraceError as error:
        return _refused(topic.name, code_of(error), str(error))
    if topic.name == _CLUSTER_METADATA:
        message = f"Creation of internal topic {topic.name} is prohibited."
        return _refused(topic.name, ErrorCode.INVALID_REQUEST, message)
    if session.broker.topics.find(topic.name) is not None:
        return _refused(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        message = "give either an assignment or counts, not both"
        return _refused(topic.name, ErrorCode.INVALID_REQUEST, message)
    wrong = _wrong_assignment(topic, session)
    if wrong is not None:
        return _refused(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions == -1:
        partitions = session.settings.num_partitions
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        message = f"Number of partitions was {partitions}; 1 to {PARTITIONS_PER_TOPIC_MAX} are possible."
        return _refused(topic.name, ErrorCode.INVALID_PARTITIONS, message)
    try:
        check_replication_factor(topic.replication_factor)
    except Invalid as error:
        return _refused(topic.name, ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    asked = {config.name: config.value for config in topic.configs if config.value is not None}
    try:
        if without := [config.name for config in topic.configs if config.value is None]:
            raise Invalid(f"Null value not supported for topic configs: {','.join(without)}")
        overrides = dict(session.broker.topics.check_config(topic.name, asked))
    except Invalid as error:
        return _refused(topic.name, ErrorCode.INVALID_CONFIG, str(error))
    result = CreatableTopicResult(
        name=topic.name,
        num_partitions=partitions,
        replication_factor=1,
        # As Kafka has it: in the client's own spelling here, and in one spelling for all who ask later.
        configs=described_overrides(overrides | asked, session),
    )
    return result if is_dry else await _create_checked(result, partitions, overrides, session)


async def _create_checked(
    result: CreatableTopicResult, partitions: int, overrides: dict[str, str], session: Session
) -> CreatableTopicResult:
    name = result.name
    try:
        topics = session.broker.topics
        create = topics.create_internal if is_internal(name) else topics.create
        created = await create(name, partitions=partitions, config=overrides)
    except AlreadyExists as error:
        return _refused(name, ErrorCode.TOPIC_ALREADY_EXISTS, str(error))
    except HeadraceError as error:
        return _refused(name, code_of(error), str(error))
    result.topic_id = created.id
    return result


def _wrong_assignment(topic: CreatableTopic, session: Session) -> str | None:
    node = session.broker.identity.broker_id
    for expected, assignment in enumerate(sorted(topic.assignments, key=lambda each: each.partition_index)):
        if assignment.partition_index != expected:
            return "partitions must be numbered from 0 without gaps"
        if assignment.broker_ids != [node]:
            return f"the only broker is {node}"
    return None


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])
