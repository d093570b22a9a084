"""`headrace cluster`: starting one on this machine, and what it consists of."""

from cyclopts import App

from headrace.cli.cluster_init import add_node, init
from headrace.cli.cluster_members import Config, Controllers, describe_members, remove_node
from headrace.cli.cluster_up import up
from headrace.cli.commands.tier import restore
from headrace.cli.options import DEFAULT_ADMIN, DEFAULT_CONNECTION, Connection
from headrace.cli.output import say, show_fields, show_json, show_table
from headrace.cli.wals import give_up_wal

app = App(name="cluster", help="Start a cluster on this machine, prepare one on several, and describe it.")
app.command(up)
app.command(init)
app.command(add_node)
app.command(remove_node)
app.command(give_up_wal)
app.command(restore)


@app.command
def describe(
    *,
    config: Config = None,
    controllers: Controllers = None,
    admin: str = DEFAULT_ADMIN,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show the cluster's id, its brokers, how much it holds, what is not uploaded yet, and whether anybody may come in.

    With --config or --controllers it is the controllers that are asked: which of them is active, the state of every broker, also of
    those that do not serve, and how many partitions each leads.

    Parameters
    ----------
    config:
        Settings file of any broker: it says where the controllers are, and how nodes prove who they are.
    controllers:
        `host:port` of each controller, where they ask for no proof.
    admin:
        Where the admin door listens; it knows what only the broker's disk has, and which listeners serve anybody. A dash where
        it does not answer.
    """
    if config is not None or controllers:
        describe_members(config=config, controllers=controllers, as_json=connection.json)
        return
    from msgspec import structs

    from headrace.cli.exposure import read_exposure, read_open_listeners
    from headrace.cli.kafka import KafkaAdmin

    cluster = KafkaAdmin(connection.bootstrap).describe_cluster()
    exposed = read_exposure(admin)
    exposure = {
        "exposed_bytes": None if exposed is None else sum(each.size_bytes for each in exposed.values()),
        "exposed_ms": None if exposed is None else max((each.age_ms for each in exposed.values()), default=0),
    }
    opened = read_open_listeners(admin)
    if connection.json:
        show_json({**structs.asdict(cluster), **exposure, "open_listeners": opened})
        return
    counts = {"cluster": cluster.cluster_id, "topics": cluster.topics, "partitions": cluster.partitions}
    access = None if opened is None else "closed" if not opened else "OPEN TO ANYBODY: " + ", ".join(opened)
    show_fields({**counts, **exposure, "access": access}, as_json=False)
    say("")
    show_table(
        [structs.asdict(broker) for broker in cluster.brokers],
        columns=("id", "host", "port", "rack", "is_controller"),
        as_json=False,
    )
