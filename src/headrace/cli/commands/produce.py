"""`headrace produce`: lines in, records out."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Annotated

from cyclopts import App, Parameter

from headrace.cli.doors import LINGER_MS, WRITE_ADDRESSES, Acks, Codec, Door, Outgoing, Writer, open_writer
from headrace.cli.interruption import Terminated, ended_in_order
from headrace.cli.lines import Lines
from headrace.cli.options import DEFAULT_CONNECTION, PARTITION_INDEX, Connection
from headrace.cli.output import note, progress, show_json
from headrace.cli.records import parse_headers, parse_separator, split_line
from headrace.errors import Invalid

app = App(
    name="produce",
    help="Write lines from standard input to a topic.",
    help_epilogue="""Examples:

    echo hello | headrace produce orders
    headrace produce orders --key-separator : --header source=cli < orders.txt
    headrace produce orders --file orders.ndjson --codec zstd --acks all --json
""",
)


@app.default
def produce(
    topic: str,
    /,
    *,
    key_separator: Annotated[str | None, Parameter(name=["--key-separator", "-K"])] = None,
    header: Annotated[list[str] | None, Parameter(name=["--header", "-H"], negative="")] = None,
    codec: Annotated[Codec, Parameter(name=["--codec", "-z"])] = "none",
    acks: Acks = "all",
    partition: Annotated[int | None, Parameter(name=["--partition", "-p"], validator=PARTITION_INDEX)] = None,
    file: Path | None = None,
    door: Door = "kafka",
    address: str | None = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Write each line as one record; the last one is acknowledged before the command ends.

    Parameters
    ----------
    key_separator:
        What parts key and value in a line, `\\t` for a tab; without it lines are values and keys are null.
    header:
        NAME=VALUE on every record. Can be given more than once.
    codec:
        Compression of the batches.
    acks:
        0 waits for nothing, 1 and all wait until the topic's durability condition holds.
    partition:
        Write to this partition. Otherwise the key decides, and records without a key are spread.
    file:
        Lines from here instead of standard input.
    door:
        Protocol to go through.
    address:
        Where that door listens; its usual port on this machine unless given. Kafka's and mlog's can be several, with commas.
    """
    separator = parse_separator(key_separator) if key_separator is not None else None
    headers = parse_headers(header or [])
    where = address or WRITE_ADDRESSES.get(door, connection.bootstrap)
    writer = open_writer(door, where, acks=acks, codec=codec)

    def send(line: bytes) -> None:
        key, value = split_line(line, separator)
        writer.send(topic, Outgoing(value=value, key=key, headers=headers, partition=partition))

    with ended_in_order(), _source(file) as source:
        lines = Lines(source, linger_s=LINGER_MS / 1000)
        try:
            with progress(topic, file.stat().st_size) if file else nullcontext() as advance:
                for line in lines:
                    if line is None:
                        writer.pause()
                        continue
                    send(line)
                    if advance:
                        advance(len(line))
        except (KeyboardInterrupt, Terminated):
            # What was read is sent, and the count is true; a second Ctrl-C does not wait for that.
            for line in lines.taken():
                send(line)
            writer.finish()
            _report(topic, writer, connection)
            raise
        writer.finish()
    _report(topic, writer, connection)


def _source(file: Path | None) -> IO[bytes]:
    if file is None:
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}") from error


def _report(topic: str, writer: Writer, connection: Connection) -> None:
    count, last = writer.receipts.count, writer.receipts.last_offsets
    if connection.json:
        offsets = {str(partition): last[partition] for partition in sorted(last)}
        show_json({"topic": topic, "records": count, "last_offsets": offsets})
    else:
        note(f"{count} record{'' if count == 1 else 's'} to {topic}")
