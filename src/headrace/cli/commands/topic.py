"""`headrace topic`: create, list, describe, alter, delete."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from headrace.cli.doors import WRITE_ADDRESSES
from headrace.cli.options import (
    COUNT_OF_COPIES,
    COUNT_OF_PARTITIONS,
    DEFAULT_ADMIN,
    DEFAULT_EITHER_WAY,
    PARTITION_INDEX,
    EitherWay,
    parse_pairs,
)
from headrace.cli.output import say, show_done, show_fields, show_json, show_table
from headrace.errors import AlreadyExists, Invalid, PartitionNotFound, TopicNotFound

if TYPE_CHECKING:
    from headrace.cli.exposure import Exposure

app = App(
    name="topic",
    help="Create, list, describe, alter and delete topics.",
    help_epilogue="""Examples:

    headrace topic create orders --partitions 12 --config retention.ms=86400000
    headrace topic describe orders --json
    headrace topic list --api https://broker-1:9642 --token-file admin.token
    headrace topic alter orders --set durability=object --unset retention.ms
    headrace topic describe orders --partition 0 --door rustlog --json
""",
)

TopicDoor = Literal["kafka", "rustlog"]


@app.command
def create(
    name: str,
    /,
    *,
    partitions: Annotated[int | None, Parameter(name=["--partitions", "-p"], validator=COUNT_OF_PARTITIONS)] = None,
    replication_factor: Annotated[
        int | None, Parameter(name=["--replication-factor", "-r"], validator=COUNT_OF_COPIES)
    ] = None,
    config: Annotated[list[str] | None, Parameter(negative="")] = None,
    if_not_exists: Annotated[bool, Parameter(negative="")] = False,
    door: TopicDoor = "kafka",
    address: str | None = None,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Create a topic.

    Parameters
    ----------
    name:
        Letters, digits, dots, underscores and hyphens.
    partitions:
        How many; the node's `num.partitions` unless given.
    replication_factor:
        Copies of the WAL's tail; the node's default unless given. Object storage is not counted.
    config:
        KEY=VALUE of the topic's own settings. Can be given more than once.
    if_not_exists:
        A topic that is there already is no error.
    door:
        Protocol to go through. RustLog's knows names and partitions only.
    address:
        Where the RustLog door listens.
    """
    if door == "rustlog":
        from headrace.cli import rustlog_topics

        if config or replication_factor or if_not_exists:
            raise Invalid("the rustlog door takes a name and --partitions only; use --door kafka")
        where = _rustlog_address(address, connection)
        rustlog_topics.create(where, name, partitions=partitions or 1, as_json=connection.json)
        return
    from headrace.cli.administration import open_topics

    try:
        open_topics(connection).create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=parse_pairs(config)
        )
    except AlreadyExists:
        if not if_not_exists:
            raise
        show_done(f"{name} exists", as_json=connection.json, topic=name, is_created=False)
        return
    show_done(f"created {name}", as_json=connection.json, topic=name, is_created=True)


@app.command(name="list")
def list_topics(
    *,
    internal: Annotated[bool, Parameter(negative="")] = False,
    door: TopicDoor = "kafka",
    address: str | None = None,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """List topics.

    Parameters
    ----------
    internal:
        Those whose names begin with two underscores, too.
    door:
        Protocol to go through.
    address:
        Where the RustLog door listens.
    """
    if door == "rustlog":
        from headrace.cli import rustlog_topics

        rustlog_topics.list_all(_rustlog_address(address, connection), as_json=connection.json)
        return
    from msgspec import structs

    from headrace.cli.administration import open_topics

    found = open_topics(connection).list_topics()
    rows = [structs.asdict(topic) for topic in found if internal or not topic.name.startswith("__")]
    show_table(rows, columns=("name", "partitions", "replication_factor"), as_json=connection.json)


@app.command
def describe(
    name: str,
    /,
    *,
    partition: Annotated[int | None, Parameter(validator=PARTITION_INDEX)] = None,
    door: TopicDoor = "kafka",
    address: str | None = None,
    admin: str = DEFAULT_ADMIN,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Show a topic's partitions, where they start and end, what is not uploaded yet, and its settings.

    Parameters
    ----------
    partition:
        Show only this partition.
    door:
        Protocol to go through. RustLog's shows segments and no settings.
    address:
        Where the RustLog door listens.
    admin:
        Address of the admin door, which knows how much is not uploaded yet; --api and --local know by themselves. A dash is shown where it does not answer.
    """
    if door == "rustlog":
        from headrace.cli import rustlog_topics

        where = _rustlog_address(address, connection)
        rustlog_topics.describe(where, name, partition=partition, as_json=connection.json)
        return
    from msgspec import structs

    from headrace.cli.administration import open_topics

    topics = open_topics(connection)
    topic = topics.describe_topic(name)
    shown = [state for state in topic.partitions if partition in (None, state.partition)]
    if not shown:
        raise PartitionNotFound(f"{name} has partitions 0 to {len(topic.partitions) - 1}, not {partition}")
    exposed = topics.exposure(name, admin=admin)
    rows = [
        {**structs.asdict(state), "exposed_bytes": None, "exposed_ms": None}
        if exposed is None
        else {**structs.asdict(state), **_exposure(exposed, name, state.partition)}
        for state in shown
    ]
    if connection.json:
        show_json({**structs.asdict(topic), "partitions": rows})
        return
    show_fields(
        {"topic": topic.name, "id": topic.topic_id, "internal": topic.is_internal, "config": topic.config},
        as_json=False,
    )
    say("")
    show_table(
        rows,
        columns=("partition", "leader", "replicas", "isr", "log_start", "end", "exposed_bytes", "exposed_ms"),
        as_json=False,
    )


@app.command
def alter(
    name: str,
    /,
    *,
    partitions: Annotated[int | None, Parameter(name=["--partitions", "-p"], validator=COUNT_OF_PARTITIONS)] = None,
    set_: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative="")] = None,
    unset: Annotated[list[str] | None, Parameter(negative="")] = None,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Change a topic's settings, or give it more partitions.

    Parameters
    ----------
    partitions:
        The new total; it can only grow.
    set_:
        KEY=VALUE. Can be given more than once.
    unset:
        KEY that follows the node's default again. Can be given more than once.
    """
    from headrace.cli.administration import open_topics

    if partitions is None and not set_ and not unset:
        raise Invalid("nothing to change: give --partitions, --set or --unset")
    changes = parse_pairs(set_)
    if both := changes.keys() & set(unset or []):
        raise Invalid(f"{min(both)}: both set and unset")
    topics = open_topics(connection)
    if set_ or unset:
        topics.alter_config(name, changes=changes, removals=unset or [])
    if partitions is not None:
        topics.add_partitions(name, partitions)
    show_done(f"altered {name}", as_json=connection.json, topic=name, is_altered=True)


@app.command
def delete(
    names: Annotated[list[str], Parameter(negative="")],
    /,
    *,
    if_exists: Annotated[bool, Parameter(negative="")] = False,
    connection: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Delete topics and their records, for good.

    Parameters
    ----------
    if_exists:
        A topic that is not there is no error.
    """
    from headrace.broker.ownership import check_client_may
    from headrace.cli.administration import open_topics

    topics = open_topics(connection)
    for name in names:
        # Kafka's client does not pass on why a node refuses it.
        check_client_may("delete", name)
        try:
            topics.delete_topic(name)
        except TopicNotFound:
            if not if_exists:
                raise
            show_done(f"{name} does not exist", as_json=connection.json, topic=name, is_deleted=False)
        else:
            show_done(f"deleted {name}", as_json=connection.json, topic=name, is_deleted=True)


def _rustlog_address(address: str | None, connection: EitherWay) -> str:
    if connection.api is not None or connection.local is not None:
        raise Invalid("--door rustlog is reached at --address only; leave out --api and --local")
    return address or WRITE_ADDRESSES["rustlog"]


def _exposure(exposed: "Mapping[tuple[str, int], Exposure]", topic: str, partition: int) -> dict[str, int]:
    found = exposed.get((topic, partition))
    return {"exposed_bytes": found.size_bytes if found else 0, "exposed_ms": found.age_ms if found else 0}
