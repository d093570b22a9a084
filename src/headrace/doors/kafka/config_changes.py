"""Changing configs: what AlterConfigs and IncrementalAlterConfigs have in common.

Topics have configs that can be changed. The broker's are its settings file's; a request to change one is refused by
name, never accepted and ignored.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, Invalid
from headrace.wire.kafka.error_codes import ErrorCode

TOPIC: Final = 2
BROKER: Final = 4


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


def check_target(resource_type: int, name: str, session: Session) -> None:
    """Only a topic that exists has configs to change."""
    if resource_type == BROKER:
        raise Refused(ErrorCode.INVALID_CONFIG, "broker configs are those of the settings file; change it and restart")
    if resource_type != TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
    if session.broker.topics.find(name) is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


async def edit_overrides(
    topic: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], session: Session, *, is_dry: bool
) -> Outcome:
    """`edit` gets what the topic has, which others may change at the same time, and gives what it shall have."""
    try:
        if is_dry:
            session.broker.topics.check_config(topic, edit(session.broker.topics.get(topic).overrides))
        else:
            await session.broker.topics.alter_config(topic, edit)
    except Invalid as error:
        return Outcome(ErrorCode.INVALID_CONFIG, str(error))
    except HeadraceError as error:
        return Outcome(code_of(error), str(error))
    return Outcome()
