"""Options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter, validators

from headrace.errors import Invalid
from headrace.limits import PARTITIONS_PER_TOPIC_MAX

AT_LEAST_ONE: Final = validators.Number(gte=1)
# A number that a client or a protocol cannot carry is refused with its option's name, before it is packed.
COUNT_OF_PARTITIONS: Final = validators.Number(gte=1, lte=PARTITIONS_PER_TOPIC_MAX)
COUNT_OF_COPIES: Final = validators.Number(gte=1, lte=10_000)
PARTITION_INDEX: Final = validators.Number(gte=0, lte=2**31 - 1)
NOT_NEGATIVE: Final = validators.Number(gte=0, lte=2**63 - 1)
POSITIVE: Final = validators.Number(gt=0)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Answer in JSON, for machines.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach the node, and how to answer."""

    bootstrap: Annotated[str, Parameter(name=["--bootstrap", "-b"], env_var="HEADRACE_BOOTSTRAP")] = "localhost:9092"
    """Address of the Kafka door of any node."""

    json: Json = False


DEFAULT_CONNECTION = Connection()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Administration:
    """How to reach the node for what needs the right to administer it, and how to answer."""

    bootstrap: Annotated[str, Parameter(name=["--bootstrap", "-b"], env_var="HEADRACE_BOOTSTRAP")] = "localhost:9092"
    """Address of the Kafka door of any node."""

    local: Path | None = None
    """Data directory of a node that runs on this machine, instead of an address: its owner is not asked who they are."""

    json: Json = False

    @property
    def address(self) -> str:
        return self.bootstrap if self.local is None else f"unix:{self.local}"


DEFAULT_ADMINISTRATION = Administration()

DEFAULT_ADMIN: Final = "localhost:9642"


def parse_pairs(assignments: list[str] | None) -> dict[str, str]:
    """What options that take KEY=VALUE were given."""
    pairs = {}
    for assignment in assignments or []:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise Invalid(f"{assignment}: expected KEY=VALUE")
        pairs[key] = value
    return pairs
