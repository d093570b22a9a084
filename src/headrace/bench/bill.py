"""What a headrace node has asked of its object store so far, by its own count."""

import time
import urllib.request
from typing import Final

import msgspec

from headrace.bench.errors import LoadFailed
from headrace.bench.rivals import Broker

_REQUESTS: Final = "headrace_object_store_requests_total"
_COUNTED_AS: Final = {
    # As S3 bills them. Deletions are free.
    "put": "puts",
    "put_if_absent": "puts",
    "get": "gets",
    "get_range": "gets",
    "head": "gets",
    "list": "lists",
}
_SENT: Final = "headrace_object_store_sent_bytes_total"
_RECEIVED: Final = "headrace_object_store_received_bytes_total"
_OBJECTS: Final = "headrace_tier_uploaded_objects_total"
_EXPOSURE: Final = "headrace_exposure_bytes"
_MANIFESTS_PENDING: Final = "headrace_tier_manifests_pending"
_UPLOAD_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 1.0
"""Rarely: the broker's answer costs it milliseconds, which are charged to what is measured."""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Requests by what they are billed as, and bytes either way."""

    puts: float = 0.0
    gets: float = 0.0
    lists: float = 0.0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    objects: float = 0.0
    """Data objects committed: PUTs without manifests, checkpoints and snapshots."""

    def __sub__(self, earlier: "Bill") -> "Bill":
        fields = self.__struct_fields__
        return Bill(**{name: getattr(self, name) - getattr(earlier, name) for name in fields})


def read_bill(broker: Broker) -> Bill:
    counts = dict.fromkeys(Bill.__struct_fields__, 0.0)
    for name, value in _samples(broker):
        plain, _, label = name.partition('{operation="')
        if plain == _REQUESTS and (field := _COUNTED_AS.get(label.rstrip('"}'))) is not None:
            counts[field] += value
        elif plain == _SENT:
            counts["sent_bytes"] = value
        elif plain == _RECEIVED:
            counts["received_bytes"] = value
        elif plain == _OBJECTS:
            counts["objects"] = value
    return Bill(**counts)


def await_uploaded(broker: Broker) -> None:
    """Until the bucket has every record and every manifest."""
    deadline = time.monotonic() + _UPLOAD_SECONDS_MAX
    while waiting := sum(value for name, value in _samples(broker) if name.startswith((_EXPOSURE, _MANIFESTS_PENDING))):
        if time.monotonic() > deadline:
            raise LoadFailed(f"{waiting / 2**20:.0f} MiB were not uploaded in {_UPLOAD_SECONDS_MAX:.0f} s")
        time.sleep(_POLL_SECONDS)


def _samples(broker: Broker) -> list[tuple[str, float]]:
    with urllib.request.urlopen(f"http://{broker.address_of('admin')}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, float(value)) for name, _, value in found]
