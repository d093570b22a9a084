"""Records as text: a line of input is a key and a value; a record becomes a line of output."""

import base64
import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.cli.doors import Received
from headrace.errors import Invalid
from headrace.telemetry.terminal import printable

PRESETS: Final = {"value": "{value}", "key-value": "{key}\t{value}"}

_FIELDS: Final[dict[bytes, Callable[[Received], bytes]]] = {
    b"topic": lambda record: record.topic.encode(),
    b"partition": lambda record: b"%d" % record.partition,
    b"offset": lambda record: b"%d" % record.offset,
    b"timestamp": lambda record: b"%d" % record.timestamp_ms,
    b"key": lambda record: record.key or b"",
    b"value": lambda record: (record.value if record.decoded is None else record.decoded) or b"",
    b"headers": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}
_PLACE = re.compile(rb"\{(\w+)\}")


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """(key, value). Without a separator, or where the line has none, there is no key."""
    line = line.removesuffix(b"\n")
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


def parse_separator(text: str) -> bytes:
    if not text:
        raise Invalid("--key-separator is empty; leave it out for records without keys")
    return _unescaped(text).encode()


def parse_headers(assignments: list[str]) -> list[tuple[str, bytes]]:
    headers = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Invalid(f"--header {assignment}: expected NAME=VALUE")
        headers.append((name, value.encode()))
    return headers


def formatter(form: str, *, is_for_terminal: bool = False) -> Callable[[Received], bytes]:
    """`json`, a preset, or a template of {topic} {partition} {offset} {timestamp} {key} {value} {headers}.

    For a terminal, what records hold is shown and not obeyed: they may carry escape sequences. The template may, too.
    """
    if form == "json":
        return (lambda record: _harmless_json(_as_json(record))) if is_for_terminal else _as_json
    template = _unescaped(PRESETS.get(form, form)).encode()
    unknown = [name.decode() for name in _PLACE.findall(template) if name not in _FIELDS]
    if unknown:
        raise Invalid(f"--format: no field {{{unknown[0]}}}; there are " + ", ".join(map(bytes.decode, _FIELDS)))
    if form not in PRESETS and not _PLACE.search(template):
        raise Invalid(f"--format {form}: expected value, key-value, json or a template such as '{{key}}: {{value}}'")
    if is_for_terminal:
        return lambda record: _PLACE.sub(lambda place: _harmless(_FIELDS[place[1]](record)), template) + b"\n"
    # Bytes in, bytes out: a value need not be text, and must come out as it went in.
    return lambda record: _PLACE.sub(lambda place: _FIELDS[place[1]](record), template) + b"\n"


def _harmless(data: bytes) -> bytes:
    return printable(data.decode(errors="backslashreplace"), keep="\n\t").encode()


def _harmless_json(line: bytes) -> bytes:
    """JSON escapes the oldest control characters and none of the others."""
    text = line.decode()
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text).encode()


def _unescaped(text: str) -> str:
    r"""Shells hand `'\t'` over as it stands."""
    return text.replace("\\t", "\t").replace("\\n", "\n")


def _as_json(record: Received) -> bytes:
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value) if record.decoded is None else msgspec.Raw(record.decoded),
        "headers": [[name, _json_bytes(value)] for name, value in record.headers],
    }
    return msgspec.json.encode(document) + b"\n"


def _json_bytes(data: bytes | None) -> object:
    """Text as a string; what is not UTF-8 as {"base64": ...}, so that nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
