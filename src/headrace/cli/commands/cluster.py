"""`headrace cluster`: what the cluster consists of."""

from cyclopts import App

from headrace.cli.commands.tier import restore
from headrace.cli.options import DEFAULT_CONNECTION, Connection
from headrace.cli.output import say, show_fields, show_json, show_table

app = App(name="cluster", help="Describe the cluster and its brokers.")
app.command(restore)


@app.command
def describe(*, connection: Connection = DEFAULT_CONNECTION) -> None:
    """Show the cluster's id, its brokers and how much it holds."""
    from msgspec import structs

    from headrace.cli.kafka import KafkaAdmin

    cluster = KafkaAdmin(connection.bootstrap).describe_cluster()
    if connection.json:
        show_json(cluster)
        return
    show_fields(
        {"cluster": cluster.cluster_id, "topics": cluster.topics, "partitions": cluster.partitions}, as_json=False
    )
    say("")
    show_table(
        [structs.asdict(broker) for broker in cluster.brokers],
        columns=("id", "host", "port", "rack", "is_controller"),
        as_json=False,
    )
