"""What the link between brokers counts. Records of `object` and `wal` topics do not pass here, but for those that a door passes on."""

from dataclasses import dataclass

from headrace.telemetry.metrics import counter


@dataclass(slots=True)
class LinkMetrics:
    link_calls_total: int = counter("Calls made to other brokers.")
    link_sent_bytes_total: int = counter("Bytes sent to other brokers, calls and answers, without TLS.")
    link_received_bytes_total: int = counter("Bytes received from other brokers, the same way.")
