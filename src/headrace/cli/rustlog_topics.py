"""Topics through the RustLog door: what its own administration tool does, in its own words."""

from msgspec import to_builtins

from headrace.cli.output import show_done, show_json, show_table
from headrace.cli.rustlog import connected
from headrace.errors import Invalid


def create(address: str, name: str, *, partitions: int, as_json: bool) -> None:
    with connected(address) as client:
        created = client.create_topic(name, partitions=partitions)
    show_done(f"created {name}", as_json=as_json, topic=name, **_fields(created))


def list_all(address: str, *, as_json: bool) -> None:
    with connected(address) as client:
        topics = client.list_topics()
    show_table([_fields(topic) for topic in topics], columns=("name", "partition_count"), as_json=as_json)


def describe(address: str, name: str, *, partition: int | None, as_json: bool) -> None:
    with connected(address) as client:
        if partition is None:
            topic = client.describe_topic(name)
            described, rows = _fields(topic), [_fields(each) for each in topic.partitions]
        elif partition < 0:
            raise Invalid(f"no partition {partition}")
        else:
            described = _fields(client.describe_partition(name, partition))
            rows = [described]
    if as_json:
        show_json(described)
        return
    columns = ("partition", "high_watermark", "log_start_offset", "segment_count")
    show_table(rows, columns=columns, as_json=False, title=name)


def _fields(message: object) -> dict[str, object]:
    fields = to_builtins(message)
    assert isinstance(fields, dict)
    fields.pop("type", None)
    return fields
