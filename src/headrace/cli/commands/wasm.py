"""`headrace wasm`: init, build, try, push, assign, list, remove, logs."""

import json as jsons
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from headrace.cli.options import (
    AT_LEAST_ONE,
    DEFAULT_API,
    DEFAULT_CONNECTION,
    NOT_NEGATIVE,
    Api,
    Bootstrap,
    Connection,
    Json,
)
from headrace.cli.output import raw_stdout, say, show_done, show_json, show_table
from headrace.transforms.projects import Language


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BothWays(Api):
    """Where modules are, and where records are."""

    bootstrap: Bootstrap = "localhost:9092"
    """Address of the Kafka door of any node."""


_BOTH_WAYS = BothWays()

app = App(
    name="wasm",
    help="Change records of a topic before they are written, with Wasm modules.",
    help_epilogue="""Examples:

    headrace wasm init scrub --language wat
    headrace wasm build scrub
    headrace wasm try scrub/transform.wasm --topic orders --last 1000
    headrace wasm push scrub scrub/transform.wasm
    headrace wasm assign orders scrub_v1 --dead-letters orders-dead
    headrace wasm list
    headrace wasm logs
    headrace wasm assign orders --none
""",
)


@app.command
def init(directory: Path, /, *, language: Language = "rust", json: Json = False) -> None:
    """Begin a module: a project that builds, to be changed.

    Parameters
    ----------
    directory:
        Where to write it.
    language:
        Rust and AssemblyScript need their own tools to be built; wat needs nothing.
    """
    from headrace.transforms.projects import begin

    written = [str(path) for path in begin(directory, language)]
    show_done("\n".join(written), as_json=json, files=written)


@app.command
def build(directory: Path = Path(), /, *, json: Json = False) -> None:
    """Build a module to DIRECTORY/transform.wasm, and check that a node would take it.

    Parameters
    ----------
    directory:
        With a Cargo.toml, a package.json or one .wat file.
    """
    from headrace.cli.wasm_trial import check_module
    from headrace.transforms import projects

    built = projects.build(directory)
    code = built.path.read_bytes()
    program = check_module(built.path.stem, code)
    kind = "whole batches" if program.adapter is None else "record by record"
    line = f"{built.path}: {len(code)} bytes, {kind}, by {built.by}"
    show_done(line, as_json=json, path=str(built.path), bytes=len(code), takes=kind, by=built.by)


@app.command(name="try")
def try_(
    module: str,
    /,
    *,
    topic: str,
    last: Annotated[int, Parameter(validator=AT_LEAST_ONE)] = 1000,
    show: Annotated[int, Parameter(validator=NOT_NEGATIVE)] = 10,
    api: BothWays = _BOTH_WAYS,
) -> None:
    """Show what a module would make of records that a topic has. Nothing is written.

    Parameters
    ----------
    module:
        A file, or the id of a module that was pushed.
    topic:
        Where the records are from.
    last:
        How many of the newest.
    show:
        How many of those that differ are shown.
    """
    from headrace.cli.wasm_trial import last_records, try_module

    records = last_records(api.bootstrap, topic, last)
    differences, lines = try_module(Path(module).stem, _code(module, api), records)
    counts = {what: sum(each.what == what for each in differences) for what in ("same", "changed", "dropped", "failed")}
    if api.json:
        show_json(
            {
                **counts,
                "lines": lines,
                "differences": [_row(each) for each in differences if each.what != "same"][:show],
            }
        )
        return
    say(
        ", ".join(f"{count} {what}" for what, count in counts.items())
        + f" of {len(differences)} records; nothing was written"
    )
    for each in islice((each for each in differences if each.what != "same"), show):
        row = _row(each)
        say(f"{row['place']}  {row['what']}")
        say(f"  - {row['before']}")
        say(f"  + {row['after']}" if each.failure is None else f"  ! {each.failure}")


@app.command
def push(name: str, file: Path, /, *, dry_run: bool = False, api: Api = DEFAULT_API) -> None:
    """Upload a module as the next version of its name.

    Parameters
    ----------
    name:
        What the module is called; its id becomes NAME_v1, NAME_v2 and so on.
    file:
        The module.
    dry_run:
        Let the node compile and check it, and keep nothing.
    """
    from base64 import b64encode

    body = {"name": name, "content": b64encode(file.read_bytes()).decode()}
    answer = api.client.post("wasm", "modules", body=body, query="dry_run=true" if dry_run else "")
    if answer["module"] is None:
        show_done("the node would take it", as_json=api.json, **answer)
    else:
        show_done(answer["module"]["id"], as_json=api.json, **answer["module"])


@app.command
def assign(
    topic: str,
    module: str | None = None,
    /,
    *,
    none: Annotated[bool, Parameter(negative="")] = False,
    dead_letters: str | None = None,
    api: Api = DEFAULT_API,
) -> None:
    """Give a topic a module, another one, or none; in force for the next batch.

    Parameters
    ----------
    topic:
        The topic.
    module:
        Its id, as `headrace wasm list` shows it.
    none:
        Take the topic's module away.
    dead_letters:
        A topic for batches that the module fails on; an empty one refuses them again.
    """
    from headrace.errors import Invalid

    if none == (module is not None):
        raise Invalid("expected a module's id, or --none")
    body: dict[str, Any] = {"module": module or ""}  # Any: JSON
    if dead_letters is not None:
        body["dead_letter_topic"] = dead_letters
    answer = api.client.post("topics", topic, "wasm", body=body)
    former = f", before {answer['former_module']}" if answer["former_module"] else ""
    show_done(f"{topic}: {answer['module'] or 'no module'}{former}", as_json=api.json, **answer)


@app.command(name="list")
def list_modules(*, api: Api = DEFAULT_API) -> None:
    """List modules, every version, and the topics that have them."""
    rows = api.client.get("wasm", "modules")["modules"]
    shown = [
        {**row, "topics": " ".join(row["topics"]), "takes": "batches" if row["takes_batches"] else "records"}
        for row in rows
    ]
    show_table(rows if api.json else shown, columns=("id", "size_bytes", "takes", "topics"), as_json=api.json)


@app.command
def remove(module: str, /, *, api: Api = DEFAULT_API) -> None:
    """Remove a module that no topic has."""
    show_done(api.client.delete("wasm", "modules", module)["message"], as_json=api.json, removed=module)


@app.command
def logs(
    *,
    module: str | None = None,
    max_: Annotated[int | None, Parameter(name=["--max", "-n"], validator=NOT_NEGATIVE)] = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Print what modules have logged, oldest first.

    Parameters
    ----------
    module:
        Only this one, by its id.
    max_:
        The newest so many.
    """
    from headrace.broker.ownership import MODULE_LOG_TOPIC
    from headrace.cli.wasm_trial import last_records
    from headrace.errors import TopicNotFound
    from headrace.telemetry.terminal import printable

    try:
        records = last_records(connection.bootstrap, MODULE_LOG_TOPIC, max_ if max_ is not None else 1000)
    except TopicNotFound:
        records = []  # Nothing was ever logged.
    out = raw_stdout()
    for _, record in records:
        line = jsons.loads(record.value or b"{}")
        if module in (None, line["module"]):
            text = (
                jsons.dumps(line)
                if connection.json
                else printable(f"{line['module']}  {line['topic']}/{line['partition']}  {line['line']}")
            )
            out.write(text.encode() + b"\n")


def _code(module: str, api: Api) -> bytes:
    path = Path(module)
    if path.exists():
        return path.read_bytes()
    from base64 import b64decode

    from headrace.errors import NotFound

    try:
        found = api.client.get("wasm", "modules", module, query="with_content=true")
    except NotFound as error:
        raise NotFound(f"there is no file {module}, and no module with that id") from error
    return b64decode(found["content"])


def _row(difference: Any) -> dict[str, str]:  # Any: `Difference`, whose module is imported where it is used
    before, after = difference.before, difference.after
    return {
        "place": f"{difference.partition}/{before.offset}",
        "what": difference.what,
        "before": _shown(before),
        "after": "" if after is None else _shown(after),
        "failure": difference.failure or "",
    }


def _shown(record: Any) -> str:  # Any: `Record`, as above
    from headrace.telemetry.terminal import printable

    def text(data: bytes | None) -> str:
        return "null" if data is None else printable(data[:200].decode("utf-8", "backslashreplace"))

    headers = "".join(f" {name}={text(value)}" for name, value in record.headers)
    return f"{text(record.key)}: {text(record.value)}{headers}"
