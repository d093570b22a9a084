"""Options that several commands share."""

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach the node, and how to answer."""

    bootstrap: Annotated[str, Parameter(name=["--bootstrap", "-b"], env_var="HEADRACE_BOOTSTRAP")] = "localhost:9092"
    """Address of the Kafka door of any node."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Answer in JSON, for machines."""


DEFAULT_CONNECTION = Connection()

DEFAULT_ADMIN: Final = "localhost:9642"
