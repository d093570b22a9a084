"""What only the admin door says: the bytes and age per partition that a broker's own disk alone has, and who may come in.

Kafka's protocol has no words for it, so the commands that show it ask beside the Kafka door, and show a dash where nobody
answers.
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
    text = _ask(admin, "/metrics")
    return None if text is None else parse_exposure(text)


def read_open_listeners(admin: str) -> list[str] | None:
    """Listeners that serve anybody on the network; None when the admin door does not answer."""
    text = _ask(admin, "/health")
    try:
        return None if text is None else msgspec.json.decode(text, type=_Health).open_listeners
    except msgspec.DecodeError:
        return None


class _Health(msgspec.Struct):
    open_listeners: list[str] | None = None
    """None of a node that does not know the word."""


def _ask(admin: str, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{admin}{path}", timeout=_TIMEOUT_S) as answer:
            text: str = answer.read().decode()
    except (OSError, HTTPException, ValueError):
        return None
    return text


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
