"""`headrace audit`: tail."""

import json
from itertools import islice
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.interruption import ended_in_order
from headrace.cli.kafka_audit import line_of, read_events
from headrace.cli.options import DEFAULT_ADMINISTRATION, NOT_NEGATIVE, Administration
from headrace.cli.output import raw_stdout
from headrace.telemetry.terminal import printable

app = App(
    name="audit",
    help="See who was refused what, and who changed what.",
    help_epilogue="""Examples:

    headrace audit tail
    headrace audit tail --from-beginning --no-follow --json
    headrace audit tail --local /var/lib/headrace
""",
)


@app.command
def tail(
    *,
    from_beginning: Annotated[bool, Parameter(negative="")] = False,
    max_: Annotated[int | None, Parameter(name=["--max", "-n"], validator=NOT_NEGATIVE)] = None,
    no_follow: Annotated[bool, Parameter(name=["--no-follow", "-e"], negative="")] = False,
    admin: Administration = DEFAULT_ADMINISTRATION,
) -> None:
    """Print events as they come, until Ctrl-C, --max or, with --no-follow, the end.

    Parameters
    ----------
    from_beginning:
        From the first event kept; otherwise from what comes next.
    max_:
        Stop after so many.
    no_follow:
        Stop at the end instead of waiting for more.
    """
    out = raw_stdout()
    with ended_in_order():
        events = read_events(admin.address, is_from_beginning=from_beginning, is_following=not no_follow)
        for event in islice(events, max_):
            # Names in it come from strangers: a terminal must not obey them. JSON has its own way to say so.
            out.write((json.dumps(json.loads(event)) if admin.json else printable(line_of(event))).encode() + b"\n")
            out.flush()
