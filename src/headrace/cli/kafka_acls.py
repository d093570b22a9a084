"""Access rules as the command line uses them: single requests to one node."""

from collections.abc import Iterable
from typing import Final

from headrace.broker.access.rules import Rule
from headrace.broker.access.words import Operation, Pattern, Permission, Resource
from headrace.cli.administration import NOBODY_IS_ASKED, NOT_ALLOWED_ACCESS
from headrace.clients.kafka import KafkaRequests
from headrace.errors import Denied, Rejected
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.kafka.messages.create_acls_response import CreateAclsResponse
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_acls_response import DescribeAclsResponse

_VERSION: Final = 3
_ANY: Final = 1
_MATCH: Final = 2


class AclAdmin:
    def __init__(self, address: str) -> None:
        self._address = address

    def create(self, rules: Iterable[Rule]) -> None:
        creations = [
            AclCreation(
                resource_type=rule.resource,
                resource_name=rule.name,
                resource_pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]
        with KafkaRequests(self._address) as node:
            answer = node.call(CreateAclsRequest(creations), _VERSION, CreateAclsResponse)
        for result in answer.results:
            check_code(result.error_code, result.error_message)

    def find(
        self, *, principal: str | None = None, kind: Resource | None = None, name: str | None = None
    ) -> list[Rule]:
        request = DescribeAclsRequest(
            resource_type_filter=_ANY if kind is None else kind,
            resource_name_filter=name,
            pattern_type_filter=_ANY if name is None else _MATCH,
            principal_filter=principal,
            operation=_ANY,
            permission_type=_ANY,
        )
        with KafkaRequests(self._address) as node:
            answer = node.call(request, _VERSION, DescribeAclsResponse)
        check_code(answer.error_code, answer.error_message)
        return [
            Rule(
                resource=Resource(row.resource_type),
                name=row.resource_name,
                pattern=Pattern(row.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=Operation(each.operation),
                permission=Permission(each.permission_type),
            )
            for row in answer.resources
            for each in row.acls
        ]

    def delete(self, rules: Iterable[Rule]) -> int:
        filters = [
            DeleteAclsFilter(
                resource_type_filter=rule.resource,
                resource_name_filter=rule.name,
                pattern_type_filter=rule.pattern,
                principal_filter=rule.principal,
                host_filter=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]
        with KafkaRequests(self._address) as node:
            answer = node.call(DeleteAclsRequest(filters), _VERSION, DeleteAclsResponse)
        for result in answer.filter_results:
            check_code(result.error_code, result.error_message)
        return sum(len(result.matching_acls) for result in answer.filter_results)


def check_code(code: int, message: str | None) -> None:
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Denied(NOT_ALLOWED_ACCESS)
    if code == ErrorCode.SECURITY_DISABLED:
        raise Rejected(NOBODY_IS_ASKED)
    if code:
        raise Rejected(message or ErrorCode(code).name)
