"""The words of access rules: what can be done, to what, and by whom. Numbers are those of Kafka's protocol."""

from enum import IntEnum
from typing import Final

import msgspec

from headrace.errors import Invalid

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of the type CLUSTER."""


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """Kinds of things that somebody may do something to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    LITERAL = 3
    """This name; `*` stands for every name."""
    PREFIXED = 4
    """Every name that begins so."""


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


SUPPORTED: Final = {
    Resource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
}
"""What can be done to each kind at all: the operations of an "authorized operations" field."""


USER: Final = "User"
"""The kind of principals that quotas speak of."""


class Principal(msgspec.Struct, frozen=True, gc=False):
    """Who somebody is, as the door that let them in has found out."""

    name: str
    kind: str = USER

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
"""Whoever was not asked."""


def parse_principal(text: str) -> Principal:
    """`User:alice`; raises `Invalid`."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise Invalid(f"expected a string in format principalType:principalName but got {text}")
    return Principal(name, kind)
