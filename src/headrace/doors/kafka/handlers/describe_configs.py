"""DescribeConfigs, v1-v4.

Every config a topic has is listed, with its source and, where asked for, its synonyms, type and sentence (trap 42:
tools crash on a missing `cleanup.policy`). Broker configs are read-only: they come from the settings file.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.broker.topic_config import TOPIC_CONFIG_KEYS, ConfigKey, is_without_effect
from headrace.doors.kafka.config_changes import BROKER, TOPIC
from headrace.doors.kafka.configs import BROKER_SOURCE, DEFAULT_SOURCE, TOPIC_SOURCE, is_set_on_broker
from headrace.doors.kafka.session import Session
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

_TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_STRING: Final = 2
_BROKER_NAMES: Final = {
    "max.message.bytes": "message.max.bytes",
    "compression.type": "compression.type",
    "min.insync.replicas": "min.insync.replicas",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
}
"""Broker-wide names of topic configs that are not just `log.` and the topic's name."""


def handle(request: DescribeConfigsRequest, version: int, session: Session) -> DescribeConfigsResponse:
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
    rows: Iterable[DescribeConfigsResourceResult]
    if resource.resource_type == TOPIC:
        topic = session.broker.topics.find(resource.resource_name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _refused(resource, code, f"The topic '{resource.resource_name}' does not exist.")
        rows = _topic_rows(topic.overrides, session.broker.topics.defaults)
    elif resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(session.broker.identity.broker_id)):
            message = f"Unexpected broker id, expected {session.broker.identity.broker_id}"
            return _refused(resource, ErrorCode.INVALID_REQUEST, message)
        rows = _broker_rows(session) if resource.resource_name else ()
    else:
        return _refused(resource, ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
    configs = [row for row in rows if wanted is None or row.name in wanted]
    for row in configs:
        if not with_synonyms:
            row.synonyms = []
        if not with_docs:
            row.documentation = None
    return DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
    )


def _topic_rows(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    for key in TOPIC_CONFIG_KEYS.values():
        synonyms = _synonyms(key, overrides, defaults)
        yield DescribeConfigsResourceResult(
            name=key.name,
            value=synonyms[0].value,
            config_source=synonyms[0].source,
            synonyms=synonyms,
            config_type=_TYPES[key.kind],
            documentation=key.doc,
        )
    for name, value in overrides.items():
        if is_without_effect(name):
            yield DescribeConfigsResourceResult(
                name=name,
                value=value,
                config_source=TOPIC_SOURCE,
                synonyms=[DescribeConfigsSynonym(name, value, TOPIC_SOURCE)],
                config_type=_STRING,
                documentation="Accepted for tools that set it; means nothing here",
            )


def _synonyms(
    key: ConfigKey, overrides: Mapping[str, str], defaults: Mapping[str, str]
) -> list[DescribeConfigsSynonym]:
    """Every place the value may come from; the first is in force."""
    broker_name = _BROKER_NAMES.get(key.name, f"log.{key.name}")
    places = []
    if key.name in overrides:
        places.append(DescribeConfigsSynonym(key.name, overrides[key.name], TOPIC_SOURCE))
    if is_set_on_broker(key.name, defaults):
        places.append(DescribeConfigsSynonym(broker_name, defaults[key.name], BROKER_SOURCE))
    places.append(DescribeConfigsSynonym(broker_name, key.default, DEFAULT_SOURCE))
    return places


def _broker_rows(session: Session) -> Iterable[DescribeConfigsResourceResult]:
    for name, value in sorted(session.broker.identity.settings.items()):
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=BROKER_SOURCE,
            synonyms=[DescribeConfigsSynonym(name, value, BROKER_SOURCE)],
            config_type=_STRING,
        )


def _refused(resource: DescribeConfigsResource, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
