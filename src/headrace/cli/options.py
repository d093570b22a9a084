"""Options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from headrace.errors import Invalid
from headrace.limits import PARTITIONS_PER_TOPIC_MAX

if TYPE_CHECKING:
    from headrace.cli.rest import RestClient

AT_LEAST_ONE: Final = validators.Number(gte=1)
# A number that a client or a protocol cannot carry is refused with its option's name, before it is packed.
COUNT_OF_PARTITIONS: Final = validators.Number(gte=1, lte=PARTITIONS_PER_TOPIC_MAX)
COUNT_OF_COPIES: Final = validators.Number(gte=1, lte=10_000)
PARTITION_INDEX: Final = validators.Number(gte=0, lte=2**31 - 1)
NOT_NEGATIVE: Final = validators.Number(gte=0, lte=2**63 - 1)
DAYS: Final = validators.Number(gte=0, lte=3_650)
POSITIVE: Final = validators.Number(gt=0)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Answer in JSON, for machines.")]
Bootstrap = Annotated[str, Parameter(name=["--bootstrap", "-b"], env_var="HEADRACE_BOOTSTRAP")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach the node, and how to answer."""

    bootstrap: Bootstrap = "localhost:9092"
    """Address of the Kafka door of any node."""

    json: Json = False


DEFAULT_CONNECTION = Connection()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Administration:
    """How to reach the node for what needs the right to administer it, and how to answer."""

    bootstrap: Bootstrap = "localhost:9092"
    """Address of the Kafka door of any node."""

    local: Path | None = None
    """Data directory of a node that runs on this machine, instead of an address: its owner is not asked who they are."""

    json: Json = False

    @property
    def address(self) -> str:
        return self.bootstrap if self.local is None else f"unix:{self.local}"


DEFAULT_ADMINISTRATION = Administration()

DEFAULT_ADMIN: Final = "localhost:9642"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Api:
    """How to reach the node's REST API, as whom, and how to answer."""

    api: Annotated[str, Parameter(env_var="HEADRACE_API")] = f"http://{DEFAULT_ADMIN}"
    """Address of the REST API of any node or controller, with https where it has a certificate (HEADRACE_API_CA names the file of who signed it)."""

    token_file: Path | None = None
    """File with the token that says who asks (`headrace user token`). HEADRACE_API_TOKEN in the environment does too."""

    local: Path | None = None
    """Data directory of a node that runs on this machine, instead of an address: its owner is not asked who they are."""

    json: Json = False

    @property
    def client(self) -> "RestClient":
        from headrace.cli.rest import RestClient

        return RestClient(self.api, local=self.local, token_file=self.token_file)


DEFAULT_API = Api()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EitherWay(Administration):
    """The same for what both the Kafka door and the REST API can do."""

    api: str | None = None
    """Address of the REST API of any node or controller: asked instead of the Kafka door where it is given."""

    token_file: Path | None = None
    """With --api, the file with the token that says who asks (`headrace user token`). HEADRACE_API_TOKEN in the environment does too."""

    def client(self, *, denial: str, is_local_too: bool = False) -> "RestClient | None":
        """None: go through the Kafka door. `denial` is what the Kafka door's way says of whoever is not allowed.

        With `is_local_too` a data directory is reached by the REST API as well: Kafka's own client knows no such addresses.
        """
        if self.api is not None and self.local is not None:
            raise Invalid("give --api or --local, not both")
        if self.api is None and not (is_local_too and self.local is not None):
            return None
        from headrace.cli.rest import RestClient

        return RestClient(self.api or "", local=self.local, token_file=self.token_file, denial=denial)


DEFAULT_EITHER_WAY = EitherWay()


def parse_pairs(assignments: list[str] | None) -> dict[str, str]:
    """What options that take KEY=VALUE were given."""
    pairs = {}
    for assignment in assignments or []:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise Invalid(f"{assignment}: expected KEY=VALUE")
        pairs[key] = value
    return pairs
