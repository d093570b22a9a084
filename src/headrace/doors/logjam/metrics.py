"""The numbers of the Logjam door."""

from dataclasses import dataclass
from typing import ClassVar

from headrace.telemetry.metrics import counter, gauge


@dataclass(slots=True)
class LogjamMetrics:
    PREFIX: ClassVar = "headrace_logjam_"

    received_total: int = counter("Logjam messages received, pings included.")
    accepted_total: int = counter("Logjam messages that were well-formed.")
    bad_requests_total: int = counter("Logjam requests answered with 400.")
    malformed_total: int = counter("Logjam messages with a wrong number of frames or a bad meta frame.")
    misnamed_total: int = counter("Logjam messages with a bad app-env or topic.")
    denied_total: int = counter("Logjam messages that the door's principal may not write.")
    undecodable_total: int = counter("Logjam messages whose body could not be decompressed or is no JSON object.")
    stored_total: int = counter("Logjam messages kept in the log.")
    dropped_total: int = counter("Logjam messages dropped because the log was full or there were too many streams.")
    accepted_then_failed_total: int = counter("Logjam requests answered 202 whose message was not kept after all.")
    published_total: int = counter("Logjam messages published to subscribers.")
    live_total: int = counter("Messages of the live stream for dashboards.")
    lost_total: int = counter("Messages that devices sent and that never arrived, by their numbers.")
    turned_away_total: int = counter("Logjam connections closed at once because the node is nearly out of files.")
    pings_total: int = counter("Logjam pings answered.")
    waiting_bytes: int = gauge("Bytes of Logjam messages that wait for the log.")
