"""What only a broker's own disk has, as the admin door shows it: bytes and age per partition.

Kafka's protocol has no words for it, so the commands that show it ask `/metrics` beside the Kafka door, and show a dash
where nobody answers.
"""

import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_S: Final = 2.0
_BYTES: Final = "headrace_exposure_bytes"
_AGE: Final = "headrace_exposure_ms"


class Exposure(msgspec.Struct, frozen=True):
    """Not yet in object storage: lost if this disk is."""

    size_bytes: int = 0
    age_ms: int = 0


def read_exposure(admin: str) -> Mapping[tuple[str, int], Exposure] | None:
    """By topic and partition, those without any left out; None when the admin door does not answer."""
    try:
        with urllib.request.urlopen(f"http://{admin}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode()
    except (OSError, HTTPException, ValueError):
        return None
    return parse_exposure(text)


def parse_exposure(text: str) -> dict[tuple[str, int], Exposure]:
    sizes: dict[tuple[str, int], int] = {}
    ages: dict[tuple[str, int], int] = {}
    for family in text_string_to_metric_families(text):
        if family.name not in (_BYTES, _AGE):
            continue
        into = sizes if family.name == _BYTES else ages
        for sample in family.samples:
            into[(sample.labels["topic"], int(sample.labels["partition"]))] = int(sample.value)
    return {key: Exposure(size, ages.get(key, 0)) for key, size in sizes.items()}
