"""Access rules, and what follows from them: exactly as Kafka's own authorizer decides.

- A rule that denies wins over all that allow. Where no rule allows, the answer is no; where no rule speaks of the resource at
  all, it is what the node was told (`allow.everyone.if.no.acl.found`).
- Who may READ, WRITE, DELETE or ALTER may DESCRIBE; who may ALTER_CONFIGS may DESCRIBE_CONFIGS. A denial implies nothing.
- Hosts are addresses, networks in CIDR notation, or `*`.

Pure: no clock, no store, no cache.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.broker.access.words import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    Principal,
    Resource,
    parse_principal,
)
from headrace.errors import Invalid

ANYBODY: Final = "User:*"
_HOST_LENGTH_MAX: Final = 255
_NAME_LENGTH_MAX: Final = 32_767

_IMPLYING: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}


class Rule(msgspec.Struct, frozen=True, kw_only=True, gc=False, order=True):
    """`principal` may, or may not, do `operation` to what `pattern` and `name` describe, coming from `host`."""

    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    principal: str
    host: str = WILDCARD
    operation: Operation
    permission: Permission = Permission.ALLOW

    @property
    def digest(self) -> str:
        """The same for the same rule, wherever it is made."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(self))).hexdigest()[:32]

    def speaks_of(self, name: str) -> bool:
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def concerns(self, principal: Principal, host: str) -> bool:
        return self.principal in (str(principal), ANYBODY) and host_matches(self.host, host)

    def covers(self, operation: Operation) -> bool:
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLYING.get(operation, ())


def host_matches(rule: str, host: str) -> bool:
    if rule in (WILDCARD, host):
        return True
    if "/" not in rule:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False


def check_rule(rule: Rule) -> None:
    """Raises `Invalid`, with the words that Kafka has, for what cannot be a rule."""
    if not rule.name or len(rule.name) > _NAME_LENGTH_MAX:
        raise Invalid("Invalid empty resource name")
    if rule.resource is Resource.CLUSTER and rule.name != CLUSTER_NAME:
        raise Invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    parse_principal(rule.principal)
    check_host(rule.host)


def check_host(host: str) -> None:
    """Kafka takes any text. One that nobody can come from would be a rule that never holds, and so a denial that denies nothing."""
    try:
        if host != WILDCARD:
            ipaddress.ip_network(host, strict=False)
    except ValueError as error:
        raise Invalid(f"host {host[:_HOST_LENGTH_MAX]!r} is neither *, an address nor a network") from error


class Rules:
    """All rules there are, found by what they speak of."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._literal: dict[tuple[Resource, str], set[Rule]] = {}
        self._prefixed: dict[tuple[Resource, str], set[Rule]] = {}
        for rule in rules:
            self.add(rule)

    def __iter__(self) -> Iterator[Rule]:
        for place in (self._literal, self._prefixed):
            for rules in place.values():
                yield from rules

    def add(self, rule: Rule) -> None:
        self._place(rule).setdefault((rule.resource, rule.name), set()).add(rule)

    def remove(self, rule: Rule) -> None:
        place = self._place(rule)
        rules = place.get((rule.resource, rule.name), set())
        rules.discard(rule)
        if not rules:
            place.pop((rule.resource, rule.name), None)

    def _place(self, rule: Rule) -> dict[tuple[Resource, str], set[Rule]]:
        return self._prefixed if rule.pattern is Pattern.PREFIXED else self._literal

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str, *, otherwise: bool
    ) -> bool:
        """`otherwise` is the answer where no rule speaks of the resource."""
        is_spoken_of = is_allowed = False
        for rule in self.about(resource, name):
            is_spoken_of = True
            if rule.concerns(principal, host) and rule.covers(operation):
                if rule.permission is Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed if is_spoken_of else otherwise

    def allows_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there may be a resource of this kind for which the answer is yes.

        As Kafka decides it: an allowed pattern counts unless a denied one covers all of it, and nothing is implied.
        """
        allowed: list[Rule] = []
        denied: set[tuple[Pattern, str]] = set()
        for rule in self:
            is_about = rule.resource is resource and rule.operation in (operation, Operation.ALL)
            if is_about and rule.concerns(principal, host):
                if rule.permission is Permission.ALLOW:
                    allowed.append(rule)
                else:
                    denied.add((rule.pattern, rule.name))
        if (Pattern.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_covered(rule, denied) for rule in allowed)

    def about(self, resource: Resource, name: str) -> Iterator[Rule]:
        yield from self._literal.get((resource, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource, WILDCARD), ())
        if self._prefixed:
            for length in range(len(name) + 1):
                yield from self._prefixed.get((resource, name[:length]), ())


def _is_covered(rule: Rule, denied: set[tuple[Pattern, str]]) -> bool:
    if rule.pattern is Pattern.LITERAL:
        if rule.name == WILDCARD:
            return False
        if (Pattern.LITERAL, rule.name) in denied:
            return True
    return any((Pattern.PREFIXED, rule.name[:length]) in denied for length in range(1, len(rule.name) + 1))


class Filter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which rules somebody asks for; None is any."""

    resource: Resource | None = None
    name: str | None = None
    pattern: Pattern | None = None
    is_match: bool = False
    """All rules that speak of `name`, not only those with that very name."""
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def takes(self, rule: Rule) -> bool:
        return (
            self.resource in (None, rule.resource)
            and self.pattern in (None, rule.pattern)
            and (self.name is None or (rule.speaks_of(self.name) if self.is_match else rule.name == self.name))
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
        )
