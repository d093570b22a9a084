"""Access rules as the metastore keeps them, also those that this version does not understand.

A newer broker may write what an older one cannot read. What cannot be read allows nothing, and if it may be a denial it denies all
that it could have meant: passed over, it would have opened what somebody has closed.
"""

from typing import TypeVar

import msgspec
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from headrace.broker.access.rules import ANYBODY, Rule
from headrace.broker.access.words import WILDCARD, Operation, Pattern, Permission, Resource, parse_principal
from headrace.control import values
from headrace.control import values_pb2 as pb
from headrace.errors import Corrupted, Invalid, NewerFormat

M = TypeVar("M", bound=Message)


class NotUnderstood(msgspec.Struct, frozen=True):
    """A rule that this version cannot read: why, and what it denies until a version that can is started."""

    reason: str
    denials: tuple[Rule, ...]


def encode_rule(rule: Rule) -> bytes:
    return values.encode(
        pb.AccessRule(
            resource_type=rule.resource,
            pattern_type=rule.pattern,
            resource_name=rule.name,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission=rule.permission,
        )
    )


def decode_rule(value: bytes) -> Rule | NotUnderstood:
    try:
        stored = decode_whole(pb.AccessRule, value)
        return Rule(
            resource=Resource(stored.resource_type),
            pattern=Pattern(stored.pattern_type),
            name=stored.resource_name,
            principal=stored.principal,
            host=stored.host,
            operation=Operation(stored.operation),
            permission=Permission(stored.permission),
        )
    except Corrupted as error:
        return NotUnderstood(str(error), _widest(pb.AccessRule()))
    except (NewerFormat, ValueError) as error:
        return NotUnderstood(str(error), _widest(values.decode(pb.AccessRule, value)))


def decode_whole(kind: type[M], value: bytes) -> M:
    """Raises `NewerFormat` for a value with fields that this version does not know: they may limit what the others say."""
    message = values.decode(kind, value)
    if len(UnknownFieldSet(message)):
        raise NewerFormat(f"a newer version has written this {kind.DESCRIPTOR.name}")
    return message


def _widest(stored: pb.AccessRule) -> tuple[Rule, ...]:
    """All that it may deny: every name, operation and host, and every kind of resource if its own is not known."""
    if stored.permission == Permission.ALLOW:
        return ()
    resources = tuple(Resource)
    return tuple(
        Rule(
            resource=resource,
            name=WILDCARD,
            principal=_principal(stored.principal),
            operation=Operation.ALL,
            permission=Permission.DENY,
        )
        for resource in resources
        if stored.resource_type not in resources or resource == stored.resource_type
    )


def _principal(text: str) -> str:
    try:
        return str(parse_principal(text))
    except Invalid:
        return ANYBODY
