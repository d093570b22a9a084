"""The numbers of the QUIC door, read when somebody scrapes. What is asked on streams is counted by the Kafka door."""

from collections.abc import Callable
from typing import Literal

from headrace.doors.quic.endpoint import Endpoint
from headrace.telemetry.metrics import Family, Metrics


def register_quic_metrics(metrics: Metrics, endpoint: Endpoint) -> None:
    def tell(name: str, sentence: str, value: Callable[[], int], kind: Literal["counter", "gauge"] = "counter") -> None:
        metrics.register_family(
            Family(name=f"headrace_quic_{name}", sentence=sentence, kind=kind, samples=lambda: [((), value())])
        )

    tell("connections", "QUIC connections open now.", lambda: len(endpoint.peers), "gauge")
    tell("half_open", "QUIC handshakes that are not complete now.", lambda: endpoint.half_open, "gauge")
    tell(
        "streams",
        "Streams of QUIC connections open now.",
        lambda: sum(len(each.streams) for each in endpoint.peers),
        "gauge",
    )
    tell(
        "held_bytes",
        "Bytes that have come on QUIC streams and that nobody has taken yet.",
        lambda: sum(each.held_bytes for each in endpoint.peers),
        "gauge",
    )
    tell("accepted", "QUIC connections begun.", lambda: endpoint.accepted_total)
    tell(
        "turned_away",
        "QUIC connections not begun, because there were too many, or too many handshakes in a second.",
        lambda: endpoint.turned_away_total,
    )
    tell("retries", "QUIC clients asked to prove their address first.", lambda: endpoint.retries_total)
    tell(
        "early",
        "QUIC connections on which something was answered before the handshake was complete (0-RTT).",
        lambda: endpoint.early_total,
    )
    tell(
        "migrations",
        "Times that a QUIC client came on from another address.",
        lambda: endpoint.migrations_total + sum(each.migrations_total for each in endpoint.peers),
    )
    tell("dropped", "Datagrams that belonged to nobody.", lambda: endpoint.dropped_total)
    tell("unsent", "Datagrams that the socket did not take.", lambda: endpoint.unsent_total)
