"""`headrace quota`: set, remove, list."""

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_EITHER_WAY, POSITIVE, EitherWay
from headrace.cli.output import show_done, show_table
from headrace.errors import Invalid, NotFound

if TYPE_CHECKING:
    from headrace.broker.access.quotas import Entity

User = Annotated[str | None, Parameter(help="A user's name; * is every user that has no quota of their own.")]
Client = Annotated[str | None, Parameter(help="A client id; * is every client id that has no quota of its own.")]
Ip = Annotated[str | None, Parameter(help="An address, for --connections; * is every address without one of its own.")]

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_EVERYBODY: Final = "*"

app = App(
    name="quota",
    help="List, set and remove quotas: how much a user, client or address may do in a second.",
    help_epilogue="""Examples:

    headrace quota set --user alice --produce 5MB --consume 20MB
    headrace quota set --user '*' --requests 50
    headrace quota set --user alice --client batch-loader --produce 1MB
    headrace quota set --ip 10.1.2.3 --connections 20
    headrace quota list --api https://broker-1:9642 --token-file admin.token
    headrace quota remove --user alice
""",
)


@app.command(name="set")
def set_quota(
    *,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    produce: str | None = None,
    consume: str | None = None,
    requests: Annotated[float | None, Parameter(validator=POSITIVE)] = None,
    connections: Annotated[float | None, Parameter(validator=POSITIVE)] = None,
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Limit somebody; other limits of theirs stay. Takes effect within a second, on open connections too.

    Parameters
    ----------
    produce:
        Bytes in a second that they may write, as 5MB.
    consume:
        Bytes in a second that they may read.
    requests:
        Percent of the node's event loop that their requests may take.
    connections:
        Connections in a second from an address.
    """
    from headrace.broker.access.quotas import Limit, check_limit
    from headrace.cli.administration import open_quotas

    given = {
        Limit.PRODUCE: None if produce is None else _bytes_of(produce),
        Limit.FETCH: None if consume is None else _bytes_of(consume),
        Limit.REQUESTS: requests,
        Limit.CONNECTIONS: connections,
    }
    limits = {limit: value for limit, value in given.items() if value is not None}
    entity = _entity_of(user, client, ip)
    if not limits:
        raise Invalid("which limit? --produce, --consume, --requests or --connections")
    for limit, value in limits.items():
        check_limit(entity, limit, value)
    open_quotas(admin).set(entity, limits)
    show_done(f"{_name(user, client, ip)}: {len(limits)} set", as_json=admin.json, limits=len(limits))


@app.command
def remove(*, user: User = None, client: Client = None, ip: Ip = None, admin: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Take all limits of somebody away."""
    from headrace.cli.administration import open_quotas

    count = open_quotas(admin).remove(_entity_of(user, client, ip))
    if not count:
        raise NotFound("there is no such quota; `headrace quota list` shows those there are")
    show_done(f"{_name(user, client, ip)}: {count} removed", as_json=admin.json, removed=count)


@app.command(name="list")
def list_quotas(*, admin: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """List all quotas; amounts are bytes in a second, percent, and connections in a second."""
    from msgspec import structs

    from headrace.cli.administration import open_quotas

    rows = [structs.asdict(each) for each in open_quotas(admin).list()]
    rows.sort(key=lambda row: tuple(row[kind] or "" for kind in ("user", "client", "ip")))
    columns = ("user", "client", "ip", "produce", "consume", "requests", "connections")
    show_table(rows, columns=columns, as_json=admin.json)


def _bytes_of(text: str) -> float:
    """`500`, `10k`, `5MB`, `1MiB`: bytes in a second."""
    lower = text.strip().lower().removesuffix("/s").removesuffix("b")
    number = lower.rstrip("kmgi")
    unit = _UNITS.get(lower[len(number) :])
    try:
        if unit is None:
            raise ValueError
        return float(round(float(number) * unit))
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{text!r} is not an amount of bytes, as 500, 10k or 5MB") from error


def _entity_of(user: str | None, client: str | None, ip: str | None) -> "Entity":
    from headrace.broker.access.quotas import DEFAULT, Entity, check_entity

    if user is client is ip is None:
        raise Invalid("whose quota? --user, --client or --ip; * stands for whoever has none of their own")
    return check_entity(Entity(*(DEFAULT if name == _EVERYBODY else name for name in (user, client, ip))))


def _name(user: str | None, client: str | None, ip: str | None) -> str:
    named = (("user", user), ("client", client), ("address", ip))
    return ", ".join(f"{kind} {name}" for kind, name in named if name is not None)
