"""`headrace transaction`: list, describe, abort."""

from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_EITHER_WAY, EitherWay
from headrace.cli.output import show_done, show_fields, show_table, time_of

app = App(
    name="transaction",
    help="Look at transactions and end those that hang.",
    help_epilogue="""Examples:

    headrace transaction list --open
    headrace transaction abort orders-writer-3
""",
)


@app.command(name="list")
def list_transactions(
    *,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """List transactional ids and the state of their last transaction.

    Parameters
    ----------
    open_:
        Only those that have no outcome yet: they hold back readers of committed records.
    """
    from msgspec import structs

    from headrace.cli.administration import open_transactions

    rows = [structs.asdict(each) for each in open_transactions(connection).rows(only_open=open_)]
    show_table(rows, columns=("transactional_id", "producer_id", "state"), as_json=connection.json)


@app.command
def describe(transactional_id: str, /, *, connection: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Show one transactional id: its producer, its timeout, and the partitions it has written to."""
    from msgspec import structs

    from headrace.cli.administration import open_transactions

    fields = structs.asdict(open_transactions(connection).describe(transactional_id))
    if not connection.json:
        started_ms = fields.pop("started_ms")
        fields["started"] = None if started_ms is None else time_of(started_ms)
    show_fields(fields, as_json=connection.json)


@app.command
def abort(transactional_id: str, /, *, connection: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Abort the open transaction of an id, and fence the producer that has it."""
    from headrace.cli.administration import open_transactions

    open_transactions(connection).abort(transactional_id)
    line = f"aborted {transactional_id}; its producer is fenced"
    show_done(line, as_json=connection.json, transactional_id=transactional_id, is_aborted=True)
