"""Configs of topics and groups in the shape Kafka's admin responses have them: values, and where each comes from."""

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.broker.config_key import ConfigKey
from headrace.broker.topic_config import TOPIC_CONFIG_KEYS
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.messages.create_topics_response import CreatableTopicConfigs
from headrace.wire.kafka.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

TOPIC_SOURCE: Final = 1
BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
GROUP_SOURCE: Final = 8

TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "password": 9,
}


def described(
    keys: Mapping[str, ConfigKey], overrides: Mapping[str, str], defaults: Mapping[str, str], own_source: int
) -> Iterator[DescribeConfigsResourceResult]:
    """Every config of one topic or group. `defaults` are the broker's values, `own_source` is for `overrides`."""
    for key in keys.values():
        synonyms = list(_synonyms(key, overrides, defaults, own_source))
        yield DescribeConfigsResourceResult(
            name=key.name,
            value=synonyms[0].value if synonyms else key.default,
            config_source=synonyms[0].source if synonyms else DEFAULT_SOURCE,
            synonyms=synonyms,
            config_type=TYPES[key.kind],
            documentation=key.doc,
        )


def _synonyms(
    key: ConfigKey, overrides: Mapping[str, str], defaults: Mapping[str, str], own_source: int
) -> Iterator[DescribeConfigsSynonym]:
    """Every place the value may come from; the first is in force."""
    if key.name in overrides:
        yield DescribeConfigsSynonym(key.name, overrides[key.name], own_source)
    if key.broker_name is not None and _is_set_on_broker(key, defaults):
        yield DescribeConfigsSynonym(key.broker_name, defaults[key.name], BROKER_SOURCE)
    if key.broker_name is not None and key.is_default_named:
        yield DescribeConfigsSynonym(key.broker_name, key.default, DEFAULT_SOURCE)


def _is_set_on_broker(key: ConfigKey, defaults: Mapping[str, str]) -> bool:
    """A broker-wide value that says nothing new counts as the built-in one: tools list what differs."""
    return key.name in defaults and defaults[key.name] != key.default


def described_overrides(overrides: Mapping[str, str], session: Session) -> list[CreatableTopicConfigs]:
    """Every config a new topic has, its own and inherited."""
    defaults = session.broker.topics.defaults
    return [
        CreatableTopicConfigs(name=row.name, value=row.value, config_source=row.config_source)
        for row in described(TOPIC_CONFIG_KEYS, overrides, defaults, TOPIC_SOURCE)
    ]
