"""`headrace inspect`: what do these bytes say?"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import App, Parameter

from headrace.cli.capture import Stream, read_capture
from headrace.cli.doors import PORTS, Door
from headrace.cli.inspection import (
    Asked,
    Seen,
    inspect_kafka_requests,
    inspect_kafka_responses,
    inspect_logjam,
    inspect_mlog,
    inspect_rustlog,
)
from headrace.cli.output import say, show_json
from headrace.errors import Invalid

app = App(
    name="inspect",
    help="Decode captured frames of any door.",
    help_epilogue="""A capture is what one side sent, byte for byte, or a pcap file as tcpdump writes it:

    tcpdump -i lo -w rustlog.pcap port 9096
    headrace inspect rustlog rustlog.pcap
    printf '0000000f7b2274797065223a2250696e67227d' | headrace inspect rustlog --hex
    headrace inspect kafka requests.bin --responses responses.bin --json
""",
)

LINE_LENGTH_MAX: Final = 2_000
"""A frame of megabytes is shown by its beginning; --json shows all of it."""

Capture = Annotated[Path | None, Parameter(name="capture")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """How to read a capture, and how to show it."""

    port: Annotated[int | None, Parameter(name=["--port", "-p"])] = None
    """Which connections of a pcap file; those to the door's usual port unless given."""

    is_hex: Annotated[bool, Parameter(name="--hex", negative="")] = False
    """Captures are hex dumps: bare digits, or as `xxd` and `hexdump -C` write them."""

    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
    """One JSON object per frame."""


_PLAIN = Options()


@app.command
def rustlog(file: Capture = None, /, *, options: Options = _PLAIN) -> None:
    """RustLog frames: length, then JSON.

    Parameters
    ----------
    file:
        The capture; standard input unless given.
    """
    streams = _streams(file, options, door="rustlog")
    _show([(stream, inspect_rustlog(stream.data)) for stream in streams], options.as_json)


@app.command
def mlog(file: Capture = None, /, *, options: Options = _PLAIN) -> None:
    """mlog frames: message type, length, then JSON.

    Parameters
    ----------
    file:
        The capture; standard input unless given.
    """
    streams = _streams(file, options, door="mlog")
    _show([(stream, inspect_mlog(stream.data)) for stream in streams], options.as_json)


@app.command
def logjam(file: Capture = None, /, *, options: Options = _PLAIN) -> None:
    """Logjam messages inside ZeroMQ's own protocol, greeting included.

    Parameters
    ----------
    file:
        The capture; standard input unless given.
    """
    streams = _streams(file, options, door="logjam")
    _show([(stream, inspect_logjam(stream.data)) for stream in streams], options.as_json)


@app.command
def kafka(
    file: Capture = None,
    /,
    *,
    responses: Path | None = None,
    options: Options = _PLAIN,
) -> None:
    """Kafka requests and, where their requests are known, responses.

    Parameters
    ----------
    file:
        The capture; standard input unless given. Raw bytes must be requests.
    responses:
        What the broker answered to them, as raw bytes.
    """
    streams = _streams(file, options, door="kafka")
    if responses is not None:
        answers = _streams(responses, options, door="kafka")
        streams += [Stream("", "", answer.data, False) for answer in answers]
    asked: dict[str, dict[int, Asked]] = {}
    # All requests first: they say what the responses are.
    ordered = sorted(streams, key=lambda stream: not stream.is_from_client)
    found: list[tuple[Stream, Iterator[Seen]]] = []
    for stream in ordered:
        client = stream.source if stream.is_from_client else stream.target
        known = asked.setdefault(client, {})
        inspect = inspect_kafka_requests if stream.is_from_client else inspect_kafka_responses
        found.append((stream, inspect(stream.data, known)))
    _show(found, options.as_json)


def _streams(file: Path | None, options: Options, *, door: Door) -> list[Stream]:
    return read_capture(_read(file), port=options.port or PORTS[door], is_hex=options.is_hex)


def _read(file: Path | None) -> bytes:
    if file is None:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}") from error


def _show(streams: list[tuple[Stream, Iterator[Seen]]], as_json: bool) -> None:
    """Everything that can be read; then exit 1 if anything could not."""
    problems = 0
    for stream, frames in streams:
        if stream.source and not as_json:
            say(f"{stream.source} -> {stream.target}")
        for seen in frames:
            problems += seen.problem is not None
            if as_json:
                show_json(seen)
            else:
                say(_line(seen))
    if problems:
        raise Invalid(f"{problems} frame{'' if problems == 1 else 's'} with problems")


def _line(seen: Seen) -> str:
    code = f" {seen.code}" if seen.code is not None else ""
    content = "" if seen.content is None else "  " + msgspec.json.encode(seen.content).decode()
    problem = "" if seen.problem is None else f"  !! {seen.problem}"
    if len(content) > LINE_LENGTH_MAX:
        content = content[:LINE_LENGTH_MAX] + f"... ({len(content)} characters)"
    return f"{seen.position:>8}  {seen.size:>7}  {seen.name}{code}{content}{problem}"
