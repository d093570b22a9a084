"""Access rules in Kafka's words, as three requests have them. What cannot be a rule is refused with the words that Kafka has."""

from typing import Final, TypeVar

from headrace.broker.access.rules import Filter, Rule, check_rule
from headrace.broker.access.words import Operation, Pattern, Permission, Resource
from headrace.errors import Invalid
from headrace.wire.kafka.messages.create_acls_request import AclCreation
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest

_ANY: Final = 1
_MATCH: Final = 2

E = TypeVar("E", Operation, Resource, Pattern, Permission)


def rule_of(row: AclCreation) -> Rule:
    """Raises `Invalid`."""
    rule = Rule(
        resource=_known(Resource, row.resource_type, "resourceType"),
        name=row.resource_name,
        pattern=_known(Pattern, row.resource_pattern_type, "patternType"),
        principal=row.principal,
        host=row.host,
        operation=_known(Operation, row.operation, "operation"),
        permission=_known(Permission, row.permission_type, "permissionType"),
    )
    check_rule(rule)
    return rule


def filter_of(row: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    """Raises `Invalid`."""
    is_match = row.pattern_type_filter == _MATCH
    return Filter(
        resource=_wanted(Resource, row.resource_type_filter, "resourceType"),
        name=row.resource_name_filter,
        pattern=None if is_match else _wanted(Pattern, row.pattern_type_filter, "patternType"),
        is_match=is_match,
        principal=row.principal_filter,
        host=row.host_filter,
        operation=_wanted(Operation, row.operation, "operation"),
        permission=_wanted(Permission, row.permission_type, "permissionType"),
    )


def _wanted(kind: type[E], number: int, field: str) -> E | None:
    return None if number == _ANY else _known(kind, number, field)


def _known(kind: type[E], number: int, field: str) -> E:
    try:
        return kind(number)
    except ValueError as error:
        raise Invalid(f"Invalid {field} {number}") from error
