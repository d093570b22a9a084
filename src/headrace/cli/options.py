"""Options that several commands share."""

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter, validators

AT_LEAST_ONE: Final = validators.Number(gte=1)
NOT_NEGATIVE: Final = validators.Number(gte=0)
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

DEFAULT_ADMIN: Final = "localhost:9642"
