"""One config of a topic or a group: its name, its type, what it may be, and what it says to an administrator."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace.errors import Invalid, suggest

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}_v[0-9]{1,9}")
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Kafka takes off both ends of a value."""

Check = Callable[[str], None]


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key that can be overridden."""

    name: str
    default: str
    kind: str
    """One of `int`, `long`, `boolean`, `double`, `string`, `list`: what DescribeConfigs calls its type."""
    check: Check
    doc: str
    broker_name: str | None = None
    """The broker-wide config that it falls back to; None where Kafka has none."""
    is_default_named: bool = True
    """False where Kafka keeps the broker's default under yet another name, and so lists no synonym for it."""
    has_effect: bool = True
    """False for what is about Kafka's segment files or replicas: checked, stored and shown, and without meaning here."""


def checked_values(overrides: Mapping[str, str], keys: Mapping[str, ConfigKey], noun: str) -> dict[str, str]:
    """The overrides as they are kept; `Invalid`, naming the key, unless every one is known and within bounds."""
    checked = {}
    for name, text in overrides.items():
        key = keys.get(name)
        if key is None:
            raise Invalid(f"unknown {noun} config {name!r}{suggest(name, keys)}")
        text = text.strip(_BLANKS)
        try:
            key.check(text)
        except Invalid as error:
            raise Invalid(f"{name}: {error}") from error
        checked[name] = _plain(key.kind, text)
    return checked


def _plain(kind: str, text: str) -> str:
    """A good value in the one spelling that Kafka shows for it, however it was written."""
    match kind:
        case "int" | "long":
            return str(int(text))
        case "double":
            return str(float(text))
        case "boolean":
            return text.lower()
        case "list":
            return ",".join(word.strip() for word in text.split(","))
    return text


def integer(low: int, high: int) -> Check:
    def check(text: str) -> None:
        # Not whatever int() takes: others read this text too, and know neither "1_000" nor the digits of all scripts.
        if not _WHOLE.fullmatch(text):
            raise Invalid(f"{text!r} is not a whole number")
        value = int(text)
        if not low <= value <= high:
            raise Invalid(f"{value} is outside {low}..{high}")

    return check


def choice(*allowed: str) -> Check:
    def check(text: str) -> None:
        if text not in allowed:
            raise Invalid(f"{text!r} is none of {', '.join(allowed)}")

    return check


def choices(*allowed: str) -> Check:
    """Any of them, or none."""

    def check(text: str) -> None:
        for word in text.split(",") if text else ():
            choice(*allowed)(word.strip())

    return check


def boolean(text: str) -> None:
    if text.lower() not in ("true", "false"):
        raise Invalid(f"{text!r} is neither true nor false")


def ratio(text: str) -> None:
    if not _DECIMAL.fullmatch(text) or not 0 <= float(text) <= 1:
        raise Invalid(f"{text!r} is no number from 0 to 1")


def topic_name(text: str) -> None:
    """A topic's name (C11), or nothing."""
    if text and (not _TOPIC.fullmatch(text) or text in (".", "..")):
        raise Invalid(f"{text[:64]!r} is no name of a topic")


def text(length_max: int) -> Check:
    def check(given: str) -> None:
        if len(given) > length_max:
            raise Invalid(f"{len(given)} characters; up to {length_max} are possible")

    return check


def module_id(text: str) -> None:
    """The id of a Wasm module, as `pii_v3`, or nothing. Whether there is one is asked when a topic gets it."""
    if text and not _MODULE.fullmatch(text):
        raise Invalid(f"{text[:64]!r} is no id of a Wasm module, such as scrub_v1")


def throttled(text: str) -> None:
    """Replicas whose traffic is held back: `*`, or partitions and brokers as `0:1,1:1`."""
    if text not in ("", "*") and not all(_REPLICA.fullmatch(each.strip()) for each in text.split(",")):
        raise Invalid(f"{text!r} is neither * nor a list of PARTITION:BROKER")
