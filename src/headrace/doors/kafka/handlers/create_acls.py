"""CreateAcls, v1-v3. Each rule is kept or refused by itself; one that is there already is kept as it is."""

from headrace.doors.kafka.access_rules import rule_of
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_acls_request import CreateAclsRequest
from headrace.wire.kafka.messages.create_acls_response import AclCreationResult, CreateAclsResponse


async def handle(request: CreateAclsRequest, version: int, session: Session) -> CreateAclsResponse:
    if not session.broker.access.is_on:
        rows = [AclCreationResult(ErrorCode.SECURITY_DISABLED, DISABLED) for _ in request.creations]
        return CreateAclsResponse(results=rows)
    rules = []
    results = []
    for row in request.creations:
        try:
            rules.append(rule_of(row))
            results.append(AclCreationResult())
        except HeadraceError as error:
            results.append(AclCreationResult(code_of(error), str(error)))
    try:
        await session.broker.access.add_rules(rules, session.guard)
    except HeadraceError as error:
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message = code_of(error), str(error)
    return CreateAclsResponse(results=results)


DISABLED = "No Authorizer is configured."
"""As Kafka says it; here it is `security.authorization.enable`."""
