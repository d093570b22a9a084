"""What a route needs of whoever asks. Named as Kafka's ACLs name it, so that one set of rules serves every door.

Who somebody is, and whether they may, `login/entrance.py` says.
"""

from enum import Enum
from typing import Final

import msgspec


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
    """Who asks, as access rules know them, and from where."""

    name: str
    host: str = ""
