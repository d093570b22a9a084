"""Changing configs: what AlterConfigs and IncrementalAlterConfigs have in common.

Topics and groups have configs that can be changed. The broker's are its settings file's; a request to change one is
refused by name, never accepted and ignored.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from headrace.broker.config_key import ConfigKey
from headrace.broker.group_config import GROUP_CONFIG_KEYS
from headrace.broker.topic_config import TOPIC_CONFIG_KEYS
from headrace.doors.kafka.coordination import coordinator_code
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, HeadraceError, Invalid
from headrace.wire.kafka.error_codes import ErrorCode

TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
KNOWN_TYPES: Final = frozenset((TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP))
"""Loggers and client metrics have no configs here, and are refused one by one."""

SET: Final = 0
DELETE: Final = 1
"""Operations of IncrementalAlterConfigs; AlterConfigs only sets."""

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


class Resource(Protocol):
    """A row of either request."""

    resource_type: int
    resource_name: str


class NamedConfig(Protocol):
    name: str


class Outcome(msgspec.Struct, frozen=True):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.outcome = Outcome(code, message)


async def outcome_of(altering: Awaitable[Outcome]) -> Outcome:
    try:
        return await altering
    except Refused as refusal:
        return refusal.outcome


def value_of(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name}: null is not a value")
    return value


# Any: rows of both requests; theirs have configs with and without an operation
def check_form(resource: Any, resources: Iterable[Resource]) -> None:
    """What is wrong with a change whatever it is about: asked before rights are, as in Kafka."""
    check_once(resource, resources)
    check_names(resource.configs)
    for config in resource.configs:
        if getattr(config, "config_operation", SET) != DELETE:
            value_of(config.name, config.value)


def is_well_formed(resource: Any, resources: Iterable[Resource]) -> bool:  # Any: as above
    try:
        check_form(resource, resources)
    except Refused:
        return False
    return True


def check_once(resource: Resource, resources: Iterable[Resource]) -> None:
    """Which of two changes of one thing should count is not for us to say."""
    named = Counter((each.resource_type, each.resource_name) for each in resources)
    if named[resource.resource_type, resource.resource_name] > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_names(configs: Sequence[NamedConfig]) -> None:
    if len({config.name for config in configs}) < len(configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "a config is named more than once")


def check_target(resource: Resource, configs: Sequence[NamedConfig], session: Session) -> None:
    """Only a topic that exists has configs to change; a group may come later."""
    resource_type, name = resource.resource_type, resource.resource_name
    if resource_type == BROKER:
        check_broker(name, session)
        if configs:
            raise Refused(
                ErrorCode.INVALID_CONFIG, "broker configs are those of the settings file; change it and restart"
            )
    elif resource_type == GROUP:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    elif resource_type != TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
    elif session.broker.topics.find(name) is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def is_spoiled(resources: Iterable[Resource]) -> bool:
    """As in Kafka, one resource of a type that does not exist spoils the whole DescribeConfigs."""
    return any(resource.resource_type not in KNOWN_TYPES for resource in resources)


def is_this_broker(resource: Resource, session: Session) -> bool:
    """The broker itself, or all of them."""
    return resource.resource_name in ("", str(session.broker.identity.broker_id))


def check_broker(name: str, session: Session) -> None:
    """The broker itself, or all of them."""
    broker_id = session.broker.identity.broker_id
    if name not in ("", str(broker_id)):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


class Defaults(msgspec.Struct, frozen=True):
    """What the configs of one kind of resource are, and what they are where nobody has set them."""

    keys: Mapping[str, ConfigKey]
    values: Mapping[str, str]

    def value(self, name: str) -> str:
        return self.values.get(name, self.keys[name].default)


def defaults_of(resource_type: int, session: Session) -> Defaults:
    if resource_type == GROUP:
        return Defaults(GROUP_CONFIG_KEYS, session.broker.groups.configs.defaults)
    return Defaults(TOPIC_CONFIG_KEYS, session.broker.topics.defaults)


async def edit_overrides(resource: Resource, edit: Edit, session: Session, *, is_dry: bool) -> Outcome:
    """`edit` gets what the resource has, which others may change at the same time, and gives what it shall have."""
    if resource.resource_type == BROKER:
        return Outcome()  # Nothing is to be changed, or `check_target` had refused it.
    try:
        change = _edit_group if resource.resource_type == GROUP else _edit_topic
        await change(resource.resource_name, edit, session, is_dry)
    except Invalid as error:
        return Outcome(ErrorCode.INVALID_CONFIG, str(error))
    except CoordinatorLoading as error:
        return Outcome(coordinator_code(error), str(error))
    except HeadraceError as error:
        return Outcome(code_of(error), str(error))
    return Outcome()


async def _edit_topic(name: str, edit: Edit, session: Session, is_dry: bool) -> None:
    topics = session.broker.topics
    if is_dry:
        topics.check_config(name, edit(topics.get(name).overrides))
    else:
        await topics.alter_config(name, edit)


async def _edit_group(name: str, edit: Edit, session: Session, is_dry: bool) -> None:
    configs = session.broker.groups.configs
    if is_dry:
        configs.checked(edit(configs.overrides_of(name)))
    else:
        await configs.alter(name, edit)
