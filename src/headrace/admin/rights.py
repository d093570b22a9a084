"""Who asks, and what a route needs of them. Named as Kafka's ACLs name them, so that one set of rules serves every door.

`Gate` is where authentication and authorization join in. `LoopbackGate` is what stands there while nobody is asked: it knows nobody,
and lets in only who is on this machine. `RuledGate` asks the access rules of all doors what they may do.
"""

import ipaddress
from enum import Enum
from typing import Final, Protocol

import msgspec

from headrace.broker.access import words
from headrace.broker.access.service import Access
from headrace.errors import Denied


class Operation(Enum):
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Resource(Enum):
    CLUSTER = "CLUSTER"
    TOPIC = "TOPIC"
    GROUP = "GROUP"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


CLUSTER_NAME: Final = "kafka-cluster"
"""What Kafka's ACLs call the one cluster there is."""


class Right(msgspec.Struct, frozen=True):
    """What a route needs. Without `field` a resource that is not the cluster is meant one by one: what the caller may not
    describe is left out of the list."""

    operation: Operation
    resource: Resource
    field: str | None = None
    """Field of the request that names the resource."""


class Principal(msgspec.Struct, frozen=True):
    name: str


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of whoever asks before anybody has proved anything."""

    address: str
    """Of the other end of the connection."""


class Gate(Protocol):
    def principal_of(self, caller: Caller) -> Principal:
        """Who it is; raises `Denied` when that is not known, or they may not come in at all."""
        ...

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool: ...


class LoopbackGate:
    """No users yet: whoever reaches this port from this machine may do everything, and nobody else anything.

    A proxy on this machine counts as this machine, whoever it speaks for.
    """

    def principal_of(self, caller: Caller) -> Principal:
        try:
            is_local = ipaddress.ip_address(caller.address.partition("%")[0]).is_loopback
        except ValueError:
            is_local = False
        if not is_local:
            raise Denied(
                "the API and the console answer this machine only while there is no authentication; "
                "use them there, or through a tunnel to it"
            )
        return Principal("User:local")

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return True


class RuledGate(LoopbackGate):
    """Whoever is let in is the listener's principal, and the access rules say what that one may do."""

    def __init__(self, access: Access, principal: words.Principal) -> None:
        self._access = access
        self._principal = principal

    def principal_of(self, caller: Caller) -> Principal:
        super().principal_of(caller)
        return Principal(str(self._principal))

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return self._access.may(
            words.parse_principal(principal.name),
            _HOST,
            words.Operation[operation.name],
            words.Resource[resource.name],
            name,
        )


_HOST: Final = "127.0.0.1"
"""Where all come from that are let in."""


def gate_of(access: Access, principal: words.Principal) -> Gate:
    return RuledGate(access, principal) if access.is_on else LoopbackGate()
