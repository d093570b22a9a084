"""DeleteAcls, v1-v3. Each filter says which rules it has taken away."""

from headrace.doors.kafka.access_rules import filter_of
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.handlers.create_acls import DISABLED
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)


async def handle(request: DeleteAclsRequest, version: int, session: Session) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[await _delete(each, session) for each in request.filters])


async def _delete(row: DeleteAclsFilter, session: Session) -> DeleteAclsFilterResult:
    if not session.broker.access.is_on:
        return DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, DISABLED)
    try:
        gone = await session.broker.access.delete_rules(filter_of(row), session.guard)
    except HeadraceError as error:
        return DeleteAclsFilterResult(code_of(error), str(error))
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=rule.resource,
                resource_name=rule.name,
                pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in gone
        ]
    )
