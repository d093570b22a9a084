"""IncrementalAlterConfigs, v0-v1: set, delete, append to and subtract from single configs (KIP-339)."""

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.doors.kafka.config_changes import (
    DELETE,
    SET,
    Defaults,
    Outcome,
    Refused,
    check_form,
    check_target,
    defaults_of,
    edit_overrides,
    outcome_of,
    value_of,
)
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

_APPEND: Final = 2
_SUBTRACT: Final = 3


async def handle(
    request: IncrementalAlterConfigsRequest, version: int, session: Session
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        outcome = await outcome_of(_alter(resource, request.resources, session, is_dry=request.validate_only))
        responses.append(
            AlterConfigsResourceResponse(outcome.code, outcome.message, resource.resource_type, resource.resource_name)
        )
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    resource: AlterConfigsResource, resources: Sequence[AlterConfigsResource], session: Session, *, is_dry: bool
) -> Outcome:
    check_form(resource, resources)
    check_target(resource, resource.configs, session)
    defaults = defaults_of(resource.resource_type, session)

    def edit(overrides: Mapping[str, str]) -> dict[str, str]:
        edited = dict(overrides)
        for config in resource.configs:
            _apply(config, edited, defaults)
        return edited

    return await edit_overrides(resource, edit, session, is_dry=is_dry)


def _apply(config: AlterableConfig, overrides: dict[str, str], defaults: Defaults) -> None:
    operation = config.config_operation
    if operation == DELETE:
        overrides.pop(config.name, None)
        return
    value = value_of(config.name, config.value)
    if operation == SET:
        overrides[config.name] = value
    elif operation in (_APPEND, _SUBTRACT):
        overrides[config.name] = _edit_list(config.name, value, operation, overrides, defaults)
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")


def _edit_list(name: str, value: str, operation: int, overrides: dict[str, str], defaults: Defaults) -> str:
    key = defaults.keys.get(name)
    if key is None or key.kind != "list":
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list: nothing can be added or taken away")
    words = [word.strip() for word in overrides.get(name, defaults.value(name)).split(",")]
    edited = [word.strip() for word in value.split(",")]
    if operation == _APPEND:
        words += [word for word in edited if word not in words]
    else:
        words = [word for word in words if word not in edited]
    return ",".join(words)
