"""AlterConfigs, v0-v2. The configs sent are all that the topic or group has afterwards (trap 43)."""

from collections.abc import Sequence

from headrace.doors.kafka.config_changes import (
    Outcome,
    check_form,
    check_target,
    edit_overrides,
    outcome_of,
    value_of,
)
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from headrace.wire.kafka.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(request: AlterConfigsRequest, version: int, session: Session) -> AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        outcome = await outcome_of(_alter(resource, request.resources, session, is_dry=request.validate_only))
        responses.append(
            AlterConfigsResourceResponse(outcome.code, outcome.message, resource.resource_type, resource.resource_name)
        )
    return AlterConfigsResponse(responses=responses)


async def _alter(
    resource: AlterConfigsResource, resources: Sequence[AlterConfigsResource], session: Session, *, is_dry: bool
) -> Outcome:
    check_form(resource, resources)
    overrides = {config.name: value_of(config.name, config.value) for config in resource.configs}
    check_target(resource, resource.configs, session)
    return await edit_overrides(resource, lambda _: overrides, session, is_dry=is_dry)
