"""What is counted per operation of the object store. Requests are what it bills."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.telemetry.metrics import Family, Histogram, Metrics, Sample, counter, gauge, histogram

OPERATIONS: Final = ("put", "put_if_absent", "get", "get_range", "head", "list", "delete")


@dataclass(slots=True)
class OperationMetrics:
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class BlobMetrics:
    object_store_sent_bytes_total: int = counter("Bytes uploaded to the object store.")
    object_store_received_bytes_total: int = counter("Bytes downloaded from the object store.")
    object_store_retries_total: int = counter("Requests to the object store that were tried again.")
    object_store_circuit_open: int = gauge("1 while requests fail at once because the object store is down.")
    object_store_put_ms: Histogram = field(
        default_factory=Histogram, metadata=histogram("Time of one upload, retries not included, in milliseconds.")
    )
    object_store_get_ms: Histogram = field(
        default_factory=Histogram, metadata=histogram("Time of one download, retries not included, in milliseconds.")
    )
    operations: dict[str, OperationMetrics] = field(
        default_factory=lambda: {name: OperationMetrics() for name in OPERATIONS}
    )

    def register(self, metrics: Metrics) -> None:
        metrics.register(self)
        metrics.register_family(
            Family(
                name="headrace_object_store_requests",
                sentence="Requests sent to the object store, by operation.",
                kind="counter",
                labels=("operation",),
                samples=lambda: _samples(self.operations, "requests"),
            )
        )
        metrics.register_family(
            Family(
                name="headrace_object_store_failures",
                sentence="Requests to the object store that failed, by operation.",
                kind="counter",
                labels=("operation",),
                samples=lambda: _samples(self.operations, "failures"),
            )
        )


def _samples(operations: Mapping[str, OperationMetrics], what: str) -> Iterable[Sample]:
    return [((name,), float(getattr(counts, what))) for name, counts in operations.items()]
