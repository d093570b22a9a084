"""`headrace group`: list, describe, reset, delete."""

from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_EITHER_WAY, NOT_NEGATIVE, EitherWay
from headrace.cli.output import note, say, show_done, show_fields, show_json, show_table
from headrace.errors import Invalid

app = App(
    name="group",
    help="Look at consumer groups and move their offsets.",
    help_epilogue="""Examples:

    headrace group describe billing
    headrace group list --api https://broker-1:9642 --token-file admin.token
    headrace group reset billing --topic orders --to-time 2026-01-31T08:00:00
    headrace group reset billing --shift -100 --execute
""",
)


@app.command(name="list")
def list_groups(*, connection: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """List groups, their state and their protocol."""
    from msgspec import structs

    from headrace.cli.administration import open_groups

    rows = [structs.asdict(each) for each in open_groups(connection).summaries()]
    show_table(rows, columns=("group", "state", "type"), as_json=connection.json)


@app.command
def describe(group: str, /, *, connection: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Show who reads what, how far, and how much is left to read."""
    from msgspec import structs

    from headrace.cli.administration import open_groups

    found = open_groups(connection).describe(group)
    if connection.json:
        show_json(found)
        return
    lag = sum(each.lag or 0 for each in found.partitions)
    show_fields(
        {"group": found.group, "state": found.state, "type": found.type, "members": found.members, "lag": lag},
        as_json=False,
    )
    say("")
    show_table(
        [structs.asdict(each) for each in found.partitions],
        columns=("topic", "partition", "committed", "end", "lag", "client", "member"),
        as_json=False,
    )


@app.command
def reset(
    group: str,
    /,
    *,
    topic: Annotated[list[str] | None, Parameter(negative="")] = None,
    to_earliest: Annotated[bool, Parameter(negative="")] = False,
    to_latest: Annotated[bool, Parameter(negative="")] = False,
    to_offset: Annotated[int | None, Parameter(validator=NOT_NEGATIVE)] = None,
    to_time: datetime | None = None,
    shift: int | None = None,
    execute: Annotated[bool, Parameter(negative="")] = False,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Move the committed offsets of a group without members. Shows what would happen unless --execute is given.

    Parameters
    ----------
    topic:
        Only this topic; all the group has committed unless given. Can be given more than once.
    to_earliest:
        To the first record kept.
    to_latest:
        Behind the last record.
    to_offset:
        To this offset, or the nearest there is.
    to_time:
        To the first record at or after this moment; local time unless it says otherwise.
    shift:
        This many records forwards, or backwards when negative.
    execute:
        Move the offsets. Without it nothing changes.
    """
    from msgspec import structs

    from headrace.broker.groups.reset_target import Target
    from headrace.cli.administration import open_groups

    chosen: list[tuple[Target, int]] = []
    if to_earliest:
        chosen.append((Target.EARLIEST, 0))
    if to_latest:
        chosen.append((Target.LATEST, 0))
    if to_offset is not None:
        chosen.append((Target.OFFSET, to_offset))
    if to_time is not None:
        chosen.append((Target.TIME, _unix_ms(to_time)))
    if shift is not None:
        chosen.append((Target.SHIFT, shift))
    if len(chosen) != 1:
        raise Invalid("give exactly one of --to-earliest, --to-latest, --to-offset, --to-time and --shift")
    (target, value) = chosen[0]
    moves = open_groups(connection).reset(group, topic or [], target, value, is_dry=not execute)
    show_table(
        [structs.asdict(move) for move in moves],
        columns=("topic", "partition", "committed", "offset"),
        as_json=connection.json,
    )
    if not execute:
        note("nothing was changed; add --execute to do it")


@app.command
def delete(
    groups: Annotated[list[str], Parameter(negative="")], /, *, connection: EitherWay = DEFAULT_EITHER_WAY
) -> None:
    """Delete groups without members, and their offsets."""
    from headrace.cli.administration import open_groups

    admin = open_groups(connection)
    for group in groups:
        admin.delete(group)
        show_done(f"deleted {group}", as_json=connection.json, group=group, is_deleted=True)


def _unix_ms(moment: datetime) -> int:
    """Before 1970 there are no records, and negative times mean something else to Kafka."""
    return max(0, int(moment.timestamp() * 1000)) if moment.year >= 1970 else 0
