"""DescribeAcls, v1-v3. Rules are grouped by what they speak of."""

from headrace.broker.access.rules import Rule
from headrace.doors.kafka.access_rules import filter_of
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.handlers.create_acls import DISABLED
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(request: DescribeAclsRequest, version: int, session: Session) -> DescribeAclsResponse:
    if not session.broker.access.is_on:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED)
    try:
        found = session.broker.access.rules(filter_of(request))
    except HeadraceError as error:
        return DescribeAclsResponse(error_code=code_of(error), error_message=str(error))
    return DescribeAclsResponse(resources=_grouped(found))


def _grouped(rules: list[Rule]) -> list[DescribeAclsResource]:
    rows: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in rules:
        key = (rule.resource, rule.name, rule.pattern)
        row = rows.setdefault(key, DescribeAclsResource(*key))
        row.acls.append(AclDescription(rule.principal, rule.host, rule.operation, rule.permission))
    return list(rows.values())
