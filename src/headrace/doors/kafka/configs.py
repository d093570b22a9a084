"""Topic configuration in the shape Kafka's admin responses have it."""

from collections.abc import Mapping
from typing import Final

from headrace.broker.topic_config import TOPIC_CONFIG_KEYS, effective, is_without_effect
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.messages.create_topics_response import CreatableTopicConfigs

TOPIC_SOURCE: Final = 1
BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5


def source_of(name: str, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> int:
    if name in overrides:
        return TOPIC_SOURCE
    return BROKER_SOURCE if is_set_on_broker(name, defaults) else DEFAULT_SOURCE


def is_set_on_broker(name: str, defaults: Mapping[str, str]) -> bool:
    """A broker-wide value that says nothing new counts as the built-in one: tools list what differs."""
    return name in defaults and defaults[name] != TOPIC_CONFIG_KEYS[name].default


def described_overrides(overrides: Mapping[str, str], session: Session) -> list[CreatableTopicConfigs]:
    """Every config a new topic has, its own and inherited."""
    defaults = session.broker.topics.defaults
    rows = [
        CreatableTopicConfigs(
            name=name, value=effective(overrides, defaults, name), config_source=source_of(name, overrides, defaults)
        )
        for name in TOPIC_CONFIG_KEYS
    ]
    rows += [
        CreatableTopicConfigs(name=name, value=value, config_source=TOPIC_SOURCE)
        for name, value in overrides.items()
        if is_without_effect(name)
    ]
    return rows
