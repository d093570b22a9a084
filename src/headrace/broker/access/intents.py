"""Access rules in the words that people have: "alice may read orders-*", and "may alice read orders, and why?"."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from headrace.broker.access.rules import Rule, check_rule
from headrace.broker.access.service import Access
from headrace.broker.access.words import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    Principal,
    Resource,
)
from headrace.errors import Invalid

KINDS: Final = {
    "topic": Resource.TOPIC,
    "group": Resource.GROUP,
    "cluster": Resource.CLUSTER,
    "transactional-id": Resource.TRANSACTIONAL_ID,
}


class Verdict(msgspec.Struct, frozen=True):
    is_allowed: bool
    reasons: list[str]


class Question(msgspec.Struct, frozen=True):
    principal: Principal
    host: str
    operation: Operation
    resource: Resource
    name: str


def word_of(member: Enum) -> str:
    """`DESCRIBE_CONFIGS` is `describe-configs`."""
    return member.name.lower().replace("_", "-")


def operation_of(verb: str) -> Operation:
    try:
        return Operation[verb.upper().replace("-", "_")]
    except KeyError as error:
        raise Invalid(f"{verb[:40]!r} is nothing that anybody can do") from error


def principal_of(name: str) -> str:
    """`alice` is `User:alice`."""
    return name if ":" in name else str(Principal(name))


def pattern_of(kind: Resource, name: str) -> tuple[Pattern, str]:
    """`orders` is that one, `orders-*` all that begin so, and `*` all."""
    if kind is Resource.CLUSTER:
        return Pattern.LITERAL, CLUSTER_NAME
    if not name:
        raise Invalid("a name is needed; * stands for all")
    if name != WILDCARD and name.endswith(WILDCARD):
        return Pattern.PREFIXED, name.removesuffix(WILDCARD)
    return Pattern.LITERAL, name


def shown_name(rule: Rule) -> str:
    """With a star behind a prefix."""
    return rule.name + (WILDCARD if rule.pattern is Pattern.PREFIXED else "")


def rules_of(who: str, verb: str, name: str, *, kind: str, group: str | None, host: str, is_denied: bool) -> list[Rule]:
    """What "allow" and "deny" say; with a group, also that they may read as it."""
    operation = operation_of(verb)
    wanted = [(KINDS[kind], name, operation)]
    if group is not None:
        wanted.append((Resource.GROUP, group, Operation.READ))
    rules = []
    for resource, text, each in wanted:
        pattern, plain = pattern_of(resource, text)
        rule = Rule(
            resource=resource,
            name=plain,
            pattern=pattern,
            principal=principal_of(who),
            host=host,
            operation=each,
            permission=Permission.DENY if is_denied else Permission.ALLOW,
        )
        check_intent(rule)
        rules.append(rule)
    return rules


def check_intent(rule: Rule) -> None:
    """Kafka keeps rules about operations that a resource does not have. They never hold, so whoever asks for one is mistaken."""
    check_rule(rule)
    if rule.operation is not Operation.ALL and rule.operation not in SUPPORTED[rule.resource]:
        possible = ", ".join(map(word_of, SUPPORTED[rule.resource]))
        raise Invalid(f"nobody can {word_of(rule.operation)} a {word_of(rule.resource)}; possible are {possible}")


def explain(rules: Iterable[Rule], principal: Principal, host: str, operation: Operation) -> Verdict:
    """What rules that speak of a resource decide about it. Neither super users nor what happens where no rule speaks are theirs."""
    about = [rule for rule in rules if rule.concerns(principal, host) and rule.covers(operation)]
    is_denied = any(rule.permission is Permission.DENY for rule in about)
    deciding = [rule for rule in about if (rule.permission is Permission.DENY) == is_denied]
    reasons = [
        f"{rule.principal} is {'denied' if is_denied else 'allowed'} {rule.operation.name} {rule.pattern.name} {rule.name}"
        for rule in deciding
    ]
    return Verdict(bool(about) and not is_denied, reasons)


def decide(access: Access, question: Question) -> Verdict:
    """What this node answers, and why."""
    asked = msgspec.structs.astuple(question)
    is_allowed = access.may(*asked)
    if not access.is_on:
        return Verdict(is_allowed, ["this node asks nobody about access (security.authorization.enable)"])
    if access.is_trusted(question.principal):
        return Verdict(is_allowed, [f"{question.principal} is a super user (security.super.users)"])
    rules = access.rules_about(question.resource, question.name)
    found = explain(rules, question.principal, question.host, question.operation)
    if found.is_allowed and not is_allowed:
        return Verdict(is_allowed, ["a rule that this version does not understand may deny it"])
    if found.reasons or not is_allowed:
        return msgspec.structs.replace(found, reasons=found.reasons or ["no rule allows it"])
    return Verdict(is_allowed, ["no rule speaks of it (allow.everyone.if.no.acl.found)"])
