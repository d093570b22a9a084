"""Access rules as the command line uses them: single requests to one node, in words that people have."""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.broker.access.intents import KINDS, Verdict, explain, operation_of, principal_of, word_of
from headrace.broker.access.rules import Rule
from headrace.broker.access.words import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    Resource,
    parse_principal,
)
from headrace.clients.kafka import KafkaRequests
from headrace.errors import Denied, Rejected
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.kafka.messages.create_acls_response import CreateAclsResponse
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

_VERSION: Final = 3
_ANY: Final = 1
_MATCH: Final = 2


class ShownRule(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    permission: str
    operation: str
    kind: str
    name: str
    """With a star behind a prefix."""
    host: str


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
    ) -> list[ShownRule]:
        """With a name, every rule that speaks of it: also those with a prefix of it, or a star."""
        return [_shown(row, each) for row in self._described(principal, kind, name) for each in row.acls]

    def _described(self, principal: str | None, kind: Resource | None, name: str | None) -> list[DescribeAclsResource]:
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
        return answer.resources

    def check(self, who: str, verb: str, name: str, *, kind: str, host: str) -> Verdict:
        resource = KINDS[kind]
        name = CLUSTER_NAME if resource is Resource.CLUSTER else name
        return explain(self._rules(resource, name), parse_principal(principal_of(who)), host, operation_of(verb))

    def _rules(self, resource: Resource, name: str) -> list[Rule]:
        """Those that speak of it."""
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
            for row in self._described(None, resource, name)
            for each in row.acls
        ]

    def delete(self, rules: Iterable[Rule]) -> int:
        """Those very rules; gives how many of them there were."""
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


def _shown(row: DescribeAclsResource, rule: AclDescription) -> ShownRule:
    return ShownRule(
        principal=rule.principal,
        permission=word_of(Permission(rule.permission_type)),
        operation=word_of(Operation(rule.operation)),
        kind=word_of(Resource(row.resource_type)),
        name=row.resource_name + (WILDCARD if row.pattern_type == Pattern.PREFIXED else ""),
        host=rule.host,
    )


def check_code(code: int, message: str | None) -> None:
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Denied("not allowed to administer access; on the node's own machine its owner is: --local DATA_DIR")
    if code == ErrorCode.SECURITY_DISABLED:
        raise Rejected("this node asks nobody about access: set security.authorization.enable and start it again")
    if code:
        raise Rejected(message or ErrorCode(code).name)
