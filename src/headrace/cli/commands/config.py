"""`headrace config`: look at and change configs of topics; look at those of brokers."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_CONNECTION, Connection, parse_pairs
from headrace.cli.output import show_done, show_table
from headrace.errors import Invalid

app = App(
    name="config",
    help="Look at and change settings of topics and brokers.",
    help_epilogue="""Examples:

    headrace config describe topic orders
    headrace config describe broker 1 --json
    headrace config alter orders --set retention.ms=86400000 --unset max.message.bytes
""",
)


@app.command
def describe(
    kind: Literal["topic", "broker"],
    name: str,
    /,
    *,
    changed: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show every config that is in force, and where it comes from.

    Parameters
    ----------
    kind:
        `topic` or `broker`.
    name:
        The topic's name, or the broker's number.
    changed:
        Only what was set on the topic itself.
    """
    from msgspec import structs

    from headrace.cli.kafka_configs import ConfigAdmin

    found = ConfigAdmin(connection.bootstrap).describe(kind, name)
    rows = [structs.asdict(each) for each in found if not changed or each.source == "topic"]
    show_table(rows, columns=("key", "value", "source"), as_json=connection.json)


@app.command
def alter(
    topic: str,
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative="")] = None,
    unset: Annotated[list[str] | None, Parameter(negative="")] = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Change configs of a topic. A broker's are those of its settings file.

    Parameters
    ----------
    set_:
        KEY=VALUE. Can be given more than once.
    unset:
        KEY that follows the node's default again. Can be given more than once.
    """
    from headrace.cli.kafka import KafkaAdmin

    if not set_ and not unset:
        raise Invalid("nothing to change: give --set or --unset")
    KafkaAdmin(connection.bootstrap).alter_config(topic, changes=parse_pairs(set_), removals=unset or [])
    show_done(f"altered {topic}", as_json=connection.json, topic=topic, is_altered=True)
