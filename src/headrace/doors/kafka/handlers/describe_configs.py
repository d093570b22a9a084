"""DescribeConfigs, v1-v4.

- Every config a topic or a group has is listed, with its source and, where asked for, its synonyms, type and sentence
  (trap 42: tools crash on a missing `cleanup.policy`).
- A group has configs whether it exists or not.
- Broker configs are read-only: they come from the settings file. Secrets are named and never shown.
"""

from collections.abc import Iterable

from headrace.broker.group_config import GROUP_CONFIG_KEYS
from headrace.broker.identity import BrokerConfig
from headrace.broker.topic_config import TOPIC_CONFIG_KEYS
from headrace.doors.kafka.config_changes import BROKER, GROUP, TOPIC, Refused, check_broker, is_spoiled
from headrace.doors.kafka.configs import (
    BROKER_SOURCE,
    DEFAULT_SOURCE,
    GROUP_SOURCE,
    TOPIC_SOURCE,
    TYPES,
    described,
)
from headrace.doors.kafka.coordination import coordinator_code
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.kafka.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

Rows = Iterable[DescribeConfigsResourceResult]


def handle(request: DescribeConfigsRequest, version: int, session: Session) -> DescribeConfigsResponse:
    if is_spoiled(request.resources):
        return DescribeConfigsResponse(results=[_spoiled(resource) for resource in request.resources])
    return DescribeConfigsResponse(
        results=[
            _describe(
                resource, session, with_synonyms=request.include_synonyms, with_docs=request.include_documentation
            )
            for resource in request.resources
        ]
    )


def _describe(
    resource: DescribeConfigsResource, session: Session, *, with_synonyms: bool, with_docs: bool
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        rows = _rows(resource.resource_type, resource.resource_name, session)
    except Refused as refusal:
        result.error_code, result.error_message = refusal.outcome.code, refusal.outcome.message
        return result
    except CoordinatorLoading as error:
        result.error_code, result.error_message = coordinator_code(error), str(error)
        return result
    # As in Kafka, none named is all of them.
    wanted = set(resource.configuration_keys or ())
    result.configs = [row for row in rows if not wanted or row.name in wanted]
    for row in result.configs:
        if not with_synonyms:
            row.synonyms = []
        if not with_docs:
            row.documentation = None
    return result


def _spoiled(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="a resource type in the request does not exist",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _rows(kind: int, name: str, session: Session) -> Rows:
    if kind == TOPIC:
        topic = session.broker.topics.find(name)
        if topic is None:
            raise Refused(missing_code(name), f"The topic '{name}' does not exist.")
        return described(TOPIC_CONFIG_KEYS, topic.overrides, session.broker.topics.defaults, TOPIC_SOURCE)
    if kind == GROUP:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        configs = session.broker.groups.configs
        return described(GROUP_CONFIG_KEYS, configs.overrides_of(name), configs.defaults, GROUP_SOURCE)
    if kind == BROKER:
        check_broker(name, session)
        return [_broker_row(each) for each in session.broker.identity.configs().values()] if name else ()
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _broker_row(config: BrokerConfig) -> DescribeConfigsResourceResult:
    is_secret = config.kind == "password"
    synonyms = []
    if config.value != config.default:
        synonyms.append(DescribeConfigsSynonym(config.name, config.value, BROKER_SOURCE))
    if config.default is not None:
        synonyms.append(DescribeConfigsSynonym(config.name, config.default, DEFAULT_SOURCE))
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=True,
        is_sensitive=is_secret,
        config_source=synonyms[0].source if synonyms else DEFAULT_SOURCE,
        synonyms=synonyms,
        config_type=TYPES[config.kind],
        documentation=config.doc,
    )
