"""`headrace cluster`: what the cluster consists of."""

from cyclopts import App

from headrace.cli.commands.tier import restore
from headrace.cli.options import DEFAULT_ADMIN, DEFAULT_CONNECTION, Connection
from headrace.cli.output import say, show_fields, show_json, show_table

app = App(name="cluster", help="Describe the cluster and its brokers.")
app.command(restore)


@app.command
def describe(*, admin: str = DEFAULT_ADMIN, connection: Connection = DEFAULT_CONNECTION) -> None:
    """Show the cluster's id, its brokers, how much it holds, and what is not uploaded yet.

    Parameters
    ----------
    admin:
        Where the admin door listens; it knows what only the broker's disk has. A dash where it does not answer.
    """
    from msgspec import structs

    from headrace.cli.exposure import read_exposure
    from headrace.cli.kafka import KafkaAdmin

    cluster = KafkaAdmin(connection.bootstrap).describe_cluster()
    exposed = read_exposure(admin)
    exposure = {
        "exposed_bytes": None if exposed is None else sum(each.size_bytes for each in exposed.values()),
        "exposed_ms": None if exposed is None else max((each.age_ms for each in exposed.values()), default=0),
    }
    if connection.json:
        show_json({**structs.asdict(cluster), **exposure})
        return
    counts = {"cluster": cluster.cluster_id, "topics": cluster.topics, "partitions": cluster.partitions}
    show_fields({**counts, **exposure}, as_json=False)
    say("")
    show_table(
        [structs.asdict(broker) for broker in cluster.brokers],
        columns=("id", "host", "port", "rack", "is_controller"),
        as_json=False,
    )
