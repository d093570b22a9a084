"""The numbers of the Kafka door. Its connections keep plain ints; everything here is read when somebody scrapes."""

from headrace.doors.connection_set import ConnectionSet
from headrace.telemetry.metrics import Family, Metrics


def register_kafka_metrics(metrics: Metrics, peers: ConnectionSet) -> None:
    for family in (
        Family(
            name="headrace_kafka_connections",
            sentence="Kafka connections open now.",
            samples=lambda: [((), len(peers.connections))],
        ),
        Family(
            name="headrace_kafka_accepted",
            sentence="Kafka connections accepted.",
            kind="counter",
            samples=lambda: [((), peers.accepted_total)],
        ),
        Family(
            name="headrace_kafka_turned_away",
            sentence="Kafka connections closed at once because the node was nearly out of files.",
            kind="counter",
            samples=lambda: [((), peers.turned_away_total)],
        ),
        Family(
            name="headrace_kafka_refused",
            sentence="Kafka requests refused because of their bytes, their key or their version.",
            kind="counter",
            samples=lambda: [((), peers.refused_frames_total)],
        ),
    ):
        metrics.register_family(family)
