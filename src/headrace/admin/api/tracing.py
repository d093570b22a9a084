"""One record on its way: appended, durable, readable, in an object, read by pipelines and groups; or why it is not."""

import msgspec

from headrace.admin.api.calls import Call, RecordRows, StoredSegment
from headrace.admin.api.records import NamedRecord, RecordView, view_of
from headrace.admin.rights import Operation, Resource
from headrace.broker.browse import Seen, browse
from headrace.broker.topics import PartitionLog
from headrace.errors import HeadraceError
from headrace.records.filters import EVERYTHING


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One station, in order."""

    name: str
    is_done: bool | None
    """None where the node cannot know."""
    sentence: str


class GroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    committed: int
    is_past: bool
    """Whether the group has committed an offset behind the record."""


class TraceRecord(NamedRecord, frozen=True):
    tables: bool = False
    """Also look for its rows in the tables of pipelines, which takes some seconds."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    record: RecordView | None
    """None where there is no record at the offset (any more)."""
    steps: list[Step]
    object: StoredSegment | None
    groups: list[GroupPlace]
    tables: list[RecordRows] = []
    """What the tables of pipelines have of it, where that was asked for."""


async def trace_record(request: TraceRecord, call: Call) -> Trace:
    partition = call.broker.topics.led_partition(request.name, request.partition)
    offset = request.offset
    record, why_not = await _record(partition, offset, call)
    segments = call.parts.storage.segments(partition.topic_id, partition.index)
    holding = [each async for each in call.turns.over(segments) if each.base_offset <= offset < each.end_offset]
    held = holding[0] if holding else None
    tables = await call.parts.pipelines.rows_of(request.name, partition.index, offset) if request.tables else []
    return Trace(
        topic=request.name,
        partition=partition.index,
        offset=offset,
        record=record,
        steps=[
            _appended(partition, offset),
            Step(name="record", is_done=record is not None, sentence=why_not or "It is there, and can be read."),
            _durable(partition, offset),
            _readable(partition, offset),
            _uploaded(partition, offset, held),
            *_pipelines(partition, offset, call),
            *map(_landed, tables),
        ],
        object=held,
        groups=await _groups(request, call),
        tables=tables,
    )


async def _record(partition: PartitionLog, offset: int, call: Call) -> tuple[RecordView | None, str]:
    if offset >= partition.end_offset:
        return None, "No record has been given this offset yet."
    if offset < partition.log_start:
        return (
            None,
            f"Deleted: the log starts at {partition.log_start}, by retention or because somebody deleted records.",
        )
    if offset >= partition.high_watermark:
        return None, "It is not readable yet: it is not kept as its topic demands."
    try:
        seen: Seen = await browse(
            call.broker.fetch, partition, offset, end_offset=offset + 1, count=1, chosen=EVERYTHING
        )
    except HeadraceError as error:
        return None, f"It cannot be read: {error}"
    if not seen.records:
        return (
            None,
            "No record has this offset: it is a transaction's marker, was compacted away, or was lost with a disk.",
        )
    return view_of(seen.records[0]), ""


def _appended(partition: PartitionLog, offset: int) -> Step:
    is_done = offset < partition.end_offset
    sentence = (
        f"Appended in leader epoch {partition.epoch_at(offset)}."
        if is_done
        else f"The partition ends at {partition.end_offset}."
    )
    return Step(name="appended", is_done=is_done, sentence=sentence)


def _durable(partition: PartitionLog, offset: int) -> Step:
    if offset < partition.durable_end:
        return Step(name="durable", is_done=True, sentence="The WAL had it on disk before it was acknowledged.")
    return Step(name="durable", is_done=False, sentence="The WAL is still writing it.")


def _readable(partition: PartitionLog, offset: int) -> Step:
    if offset < partition.last_stable_offset:
        return Step(name="readable", is_done=True, sentence="Every consumer may read it.")
    if offset < partition.high_watermark:
        sentence = "Readers of committed records wait: a transaction that began before it is still open."
        return Step(name="readable", is_done=False, sentence=sentence)
    demanded = "object storage" if partition.policy.durability == "object" else "the WAL"
    return Step(name="readable", is_done=False, sentence=f"Its topic demands that {demanded} has it first.")


def _uploaded(partition: PartitionLog, offset: int, held: StoredSegment | None) -> Step:
    if held is not None:
        sentence = f"In {held.key}, {held.size_bytes} bytes from {held.position} on."
        return Step(name="in object storage", is_done=True, sentence=sentence)
    if offset < partition.uploaded_end:
        sentence = "No object holds it any more: deleted, or compacted away."
        return Step(name="in object storage", is_done=None, sentence=sentence)
    sentence = "Exposed: on this disk only, until its upload."
    return Step(name="in object storage", is_done=False, sentence=sentence)


def _pipelines(partition: PartitionLog, offset: int, call: Call) -> list[Step]:
    """By how much each has left to read; what stands in their tables is looked up where it is asked for."""
    steps = []
    place = f"{partition.topic_name}-{partition.index}"
    for each in call.parts.pipelines.state().pipelines:
        left = each.lag.get(place, 0)
        read_to = partition.high_watermark - left
        if each.state != "running":
            step = Step(
                name=f"pipeline {each.name}",
                is_done=None,
                sentence=f"It is {each.state}: {each.error or 'nobody knows'}.",
            )
        elif offset < read_to:
            sentence = (
                f"It has read to about {read_to}, if it reads this topic; {each.rows_total} rows since it started."
            )
            step = Step(name=f"pipeline {each.name}", is_done=True, sentence=sentence)
        else:
            sentence = f"It has {left} records of this partition left to read."
            step = Step(name=f"pipeline {each.name}", is_done=False, sentence=sentence)
        steps.append(step)
    return steps


def _landed(found: RecordRows) -> Step:
    name, is_done = f"table {found.table}", bool(found.rows)
    if not found.has_origins:
        return Step(name=name, is_done=None, sentence="Its rows do not say which records they come from.")
    if found.reason is not None:
        return Step(name=name, is_done=is_done, sentence=f"A dead letter of {found.pipeline}: {found.reason}.")
    if not is_done:
        return Step(name=name, is_done=False, sentence=f"No row of {found.pipeline} comes from it.")
    count = "One row comes" if len(found.rows) == 1 else f"{len(found.rows)} rows come"
    return Step(name=name, is_done=True, sentence=f"{count} from it, by {found.pipeline}.")


async def _groups(request: NamedRecord, call: Call) -> list[GroupPlace]:
    found = []
    async for group in call.turns.over(call.broker.offsets.groups()):
        committed = call.broker.offsets.committed(group, request.name, request.partition)
        if committed is not None and call.sees(Operation.DESCRIBE, Resource.GROUP, group):
            found.append(GroupPlace(group=group, committed=committed.offset, is_past=committed.offset > request.offset))
    return sorted(found, key=lambda each: each.group)
