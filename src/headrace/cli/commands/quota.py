"""`headrace quota`: set, remove, list."""

from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_ADMINISTRATION, POSITIVE, Administration
from headrace.cli.output import show_done, show_table

User = Annotated[str | None, Parameter(help="A user's name; * is every user that has no quota of their own.")]
Client = Annotated[str | None, Parameter(help="A client id; * is every client id that has no quota of its own.")]
Ip = Annotated[str | None, Parameter(help="An address, for --connections; * is every address without one of its own.")]

app = App(
    name="quota",
    help="List, set and remove quotas: how much a user, client or address may do in a second.",
    help_epilogue="""Examples:

    headrace quota set --user alice --produce 5MB --consume 20MB
    headrace quota set --user '*' --requests 50
    headrace quota set --user alice --client batch-loader --produce 1MB
    headrace quota set --ip 10.1.2.3 --connections 20
    headrace quota list
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
    admin: Administration = DEFAULT_ADMINISTRATION,
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
    from headrace.broker.access.quotas import Limit
    from headrace.cli.kafka_quotas import QuotaAdmin, bytes_of, entity_of

    given = {
        Limit.PRODUCE: None if produce is None else bytes_of(produce),
        Limit.FETCH: None if consume is None else bytes_of(consume),
        Limit.REQUESTS: requests,
        Limit.CONNECTIONS: connections,
    }
    limits = {limit: value for limit, value in given.items() if value is not None}
    QuotaAdmin(admin.address).set(entity_of(user, client, ip), limits)
    show_done(f"{_name(user, client, ip)}: {len(limits)} set", as_json=admin.json, limits=len(limits))


@app.command
def remove(
    *, user: User = None, client: Client = None, ip: Ip = None, admin: Administration = DEFAULT_ADMINISTRATION
) -> None:
    """Take all limits of somebody away."""
    from headrace.cli.kafka_quotas import QuotaAdmin, entity_of

    count = QuotaAdmin(admin.address).remove(entity_of(user, client, ip))
    show_done(f"{_name(user, client, ip)}: {count} removed", as_json=admin.json, removed=count)


@app.command(name="list")
def list_quotas(*, admin: Administration = DEFAULT_ADMINISTRATION) -> None:
    """List all quotas; amounts are bytes in a second, percent, and connections in a second."""
    from msgspec import structs

    from headrace.cli.kafka_quotas import COLUMNS, QuotaAdmin

    rows = [structs.asdict(each) for each in QuotaAdmin(admin.address).list()]
    show_table(rows, columns=("user", "client", "ip", *COLUMNS), as_json=admin.json)


def _name(user: str | None, client: str | None, ip: str | None) -> str:
    named = (("user", user), ("client", client), ("address", ip))
    return ", ".join(f"{kind} {name}" for kind, name in named if name is not None)
