"""`headrace trace`: where one record is, from the WAL to its object, and who has read it."""

from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_API, Api
from headrace.cli.output import say, show_json, show_table

app = App(
    name="trace",
    help="Follow one record from the WAL to its object, pipelines and groups.",
    help_epilogue="""Examples:

    headrace trace orders/0/1234
    headrace trace orders/0/1234 --tables --json
""",
)


@app.default
def trace(
    place: str,
    /,
    *,
    tables: Annotated[bool, Parameter(negative="")] = False,
    api: Api = DEFAULT_API,
) -> None:
    """Show how far one record has come, or why it is not there.

    Parameters
    ----------
    place:
        TOPIC/PARTITION/OFFSET.
    tables:
        Also look for its rows in the tables of pipelines, which takes some seconds.
    """
    from headrace.cli.rest import parse_place

    topic, partition, offset = parse_place(place)
    found = api.client.get(
        "topics", topic, "partitions", partition, "records", offset, "trace", query="tables=true" if tables else ""
    )
    if api.json:
        show_json(found)
        return
    marks = {True: "yes", False: "no", None: "?"}
    show_table(
        [{"step": row["name"], "done": marks[row["is_done"]], "": row["sentence"]} for row in found["steps"]],
        columns=("step", "done", ""),
        as_json=False,
    )
    if found["groups"]:
        say("")
        rows = [
            {"group": row["group"], "committed": row["committed"], "has read it": row["is_past"]}
            for row in found["groups"]
        ]
        show_table(rows, columns=("group", "committed", "has read it"), as_json=False)
