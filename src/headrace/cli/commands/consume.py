"""`headrace consume`: records in, lines out."""

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated

from cyclopts import App, Parameter
from msgspec import structs

from headrace.cli.doors import READ_ADDRESSES, Door, Received, Start, open_reader
from headrace.cli.interruption import ended_in_order
from headrace.cli.options import DEFAULT_CONNECTION, NOT_NEGATIVE, PARTITION_INDEX, Connection
from headrace.cli.output import note, raw_stdout
from headrace.cli.records import formatter
from headrace.errors import Invalid, Rejected, Unavailable

app = App(
    name="consume",
    help="Read a topic to standard output.",
    help_epilogue="""Examples:

    headrace consume orders --from-beginning --max 10
    headrace consume orders --offset 1200 --partition 3 --format '{offset} {key}: {value}'
    headrace consume orders --group billing --format json
""",
)


@app.default
def consume(
    topic: str,
    /,
    *,
    from_beginning: Annotated[bool, Parameter(negative="")] = False,
    offset: Annotated[int | None, Parameter(name=["--offset", "-o"], validator=NOT_NEGATIVE)] = None,
    partition: Annotated[int | None, Parameter(name=["--partition", "-p"], validator=PARTITION_INDEX)] = None,
    max_: Annotated[int | None, Parameter(name=["--max", "-n"], validator=NOT_NEGATIVE)] = None,
    no_follow: Annotated[bool, Parameter(name=["--no-follow", "-e"], negative="")] = False,
    format_: Annotated[str, Parameter(name=["--format", "-f"])] = "value",
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    committed_only: Annotated[bool, Parameter(negative="")] = False,
    raw: Annotated[bool, Parameter(negative="")] = False,
    door: Door = "kafka",
    address: str | None = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Print records as they come, until Ctrl-C, --max or, with --no-follow, the end.

    Parameters
    ----------
    from_beginning:
        Begin with the first record kept; otherwise with the next that is written. With --group: only where the group has no offset yet.
    offset:
        From this offset, in every partition read.
    partition:
        Read only this partition.
    max_:
        Stop after this many records.
    no_follow:
        Stop at the end of the topic instead of waiting for more.
    format_:
        `value`, `key-value`, `json`, or a template of {topic} {partition} {offset} {timestamp} {key} {value} {headers}.
    group:
        Read as a member of this consumer group, and commit what was read.
    committed_only:
        Leave out records of transactions that are open or were aborted.
    raw:
        Print records as they are: also on a terminal, where control characters are otherwise shown (`\\x1b`) and not obeyed, and also where the topic has a schema (`value.schema`), by which values are otherwise shown as JSON through the kafka door.
    door:
        Protocol to go through.
    address:
        Where that door listens; its usual port on this machine unless given. Kafka's and mlog's can be several, with commas.
    """
    if from_beginning and offset is not None:
        raise Invalid("give --from-beginning or --offset, not both")
    if group is not None and (offset is not None or partition is not None):
        raise Invalid("--group decides partitions and offsets itself; leave out --offset and --partition")
    show = formatter("json" if connection.json else format_, is_for_terminal=sys.stdout.isatty() and not raw)
    start = Start(offset=offset, is_beginning=from_beginning)
    where = address or READ_ADDRESSES.get(door, connection.bootstrap)
    reader = open_reader(door, where, group=group, start=start, is_committed_only=committed_only)
    out = raw_stdout()
    read = (lambda record: record) if raw or door != "kafka" else _decoder(topic, connection.bootstrap)
    with ended_in_order(), closing(reader):
        for record in islice(reader.read(topic, partition=partition, is_following=not no_follow), max_):
            out.write(show(read(record)))
            if sys.stdout.isatty() or not no_follow:
                out.flush()
        out.flush()


def _decoder(topic: str, bootstrap: str) -> Callable[[Received], Received]:
    """Adds values by the topic's schema; of one that cannot be read so, says why."""
    from headrace.cli.kafka_configs import ConfigAdmin
    from headrace.records.schemas.value_schema import schema_of

    schema = None
    # Who may not see configs may read all the same, and what else is wrong the reader finds out and says.
    with suppress(Rejected, Unavailable):
        found = ConfigAdmin(bootstrap).describe("topic", topic)
        schema = schema_of({row.key: row.value or "" for row in found})

    def read(record: Received) -> Received:
        if schema is None or record.value is None:
            return record
        decoded = schema.decode(record.value)
        if decoded.json is None:
            note(
                f"{topic}/{record.partition}/{record.offset} is not shown by the {schema.kind} schema: {decoded.reason}"
            )
        return structs.replace(record, decoded=decoded.json)

    return read
