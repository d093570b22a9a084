"""The numbers of the RustLog door, under the names its MetricsFetch gives them."""

from dataclasses import dataclass, field
from typing import ClassVar

from headrace.telemetry.metrics import LatencyWindow, counter, gauge, latency


@dataclass(slots=True)
class RustLogMetrics:
    PREFIX: ClassVar = "headrace_rustlog_"

    messages_produced_total: int = counter("Records appended through RustLog.")
    messages_fetched_total: int = counter("Records returned to RustLog fetches.")
    bytes_in_total: int = counter("Bytes of RustLog requests, frames included.")
    bytes_out_total: int = counter("Bytes of RustLog responses, frames included.")
    active_connections: int = gauge("RustLog connections open now.")
    requests_total: int = counter("RustLog requests taken.")
    errors_total: int = counter("RustLog requests answered with an Error.")
    malformed_total: int = counter("RustLog connections closed because of what they sent.")
    produce_latency_ns: LatencyWindow = field(
        default_factory=LatencyWindow, metadata=latency("Time from a Produce's last byte to its answer.")
    )
    fetch_latency_ns: LatencyWindow = field(
        default_factory=LatencyWindow, metadata=latency("Time from a Fetch's last byte to its answer.")
    )
