"""The numbers of the mlog door."""

from dataclasses import dataclass
from typing import ClassVar

from headrace.telemetry.metrics import counter, gauge


@dataclass(slots=True)
class MlogMetrics:
    PREFIX: ClassVar = "headrace_mlog_"

    active_connections: int = gauge("mlog connections open now.")
    requests_total: int = counter("mlog requests taken.")
    errors_total: int = counter("mlog requests answered with an RPCError.")
    malformed_total: int = counter("mlog connections closed because of what they sent.")
    bytes_in_total: int = counter("Bytes of mlog requests, frames included.")
    bytes_out_total: int = counter("Bytes of mlog responses, frames included.")
    records_produced_total: int = counter("Records appended through mlog.")
    records_fetched_total: int = counter("Records returned through mlog.")
