"""Configurations of topics, which can be changed, and of brokers, which are their settings file's."""

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.topics import TopicName
from headrace.admin.errors import StaleTag
from headrace.broker.topic_config import TOPIC_CONFIG_KEYS, effective, source_of
from headrace.errors import Invalid, ResourceNotFound


class ConfigRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    default: str
    source: str
    """`topic`, `broker` or `default`."""
    type: str
    sentence: str
    has_effect: bool = True


class TopicConfigs(msgspec.Struct, frozen=True, kw_only=True):
    configs: list[ConfigRow]
    revision: str
    """Changes with every change; `If-Match` compares it."""
    is_dry_run: bool = False


class DescribeTopicConfigs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName


class UpdateTopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    set: dict[str, str] = {}
    unset: Annotated[list[str], Meta(max_length=100)] = []
    """Keys that go back to what is inherited."""
    if_match: str = ""
    """Refuse unless the configs still have this revision."""
    dry_run: bool = False


class NamedBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    broker: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class BrokerConfigs(msgspec.Struct, frozen=True, kw_only=True):
    configs: dict[str, str]
    """Secrets are left out."""


async def describe_topic_configs(request: DescribeTopicConfigs, call: Call) -> TopicConfigs:
    topic = call.broker.topics.get(request.name)
    return _described(topic.overrides, call.broker.topics.defaults)


async def update_topic_config(request: UpdateTopicConfig, call: Call) -> TopicConfigs:
    if both := request.set.keys() & set(request.unset):
        raise Invalid(f"{min(both)}: both set and unset")
    topics = call.broker.topics

    def edit(overrides: Mapping[str, str]) -> Mapping[str, str]:
        # Compared here, where nobody else can change it any more before it is written.
        if request.if_match and request.if_match != _revision(overrides):
            raise StaleTag(f"the configs of '{request.name}' have changed since they were read: read them again")
        after = {**{name: value for name, value in overrides.items() if name not in request.unset}, **request.set}
        call.changed(before=dict(overrides), after=after)
        return after

    if request.dry_run:
        planned = topics.check_config(request.name, edit(topics.get(request.name).overrides))
        return msgspec.structs.replace(_described(planned, topics.defaults), is_dry_run=True)
    await topics.alter_config(request.name, edit)
    return _described(topics.get(request.name).overrides, topics.defaults)


async def describe_broker_configs(request: NamedBroker, call: Call) -> BrokerConfigs:
    identity = call.broker.identity
    if request.broker != identity.broker_id:
        raise ResourceNotFound(f"no broker {request.broker}; there is {identity.broker_id}")
    return BrokerConfigs(
        configs={name: each.value for name, each in sorted(identity.configs().items()) if each.value is not None}
    )


def _described(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> TopicConfigs:
    rows = [
        ConfigRow(
            name=key.name,
            value=effective(overrides, defaults, key.name),
            default=defaults.get(key.name, key.default),
            source=source_of(key.name, overrides, defaults),
            type=key.kind,
            sentence=key.doc,
            has_effect=key.has_effect,
        )
        for key in TOPIC_CONFIG_KEYS.values()
        # What means nothing here is shown where somebody has set it.
        if key.has_effect or key.name in overrides
    ]
    return TopicConfigs(configs=rows, revision=_revision(overrides))


def _revision(overrides: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(overrides.items()))).hexdigest()[:16]
