"""Pipelines beside this node: their state, what stands in their tables, dead letters, and steering them."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call, PipelinesState, PipelineState, TableState
from headrace.admin.api.cluster import Nothing
from headrace.admin.api.operations import OperationView, Progress
from headrace.admin.api.topics import Done
from headrace.admin.rights import Operation, Resource
from headrace.errors import Invalid, ResourceNotFound

PipelineName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]
"""It becomes an argument of a process: it begins with no dash."""


class NamedPipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pipeline: str


class PipelineTables(msgspec.Struct, frozen=True, kw_only=True):
    tables: list[TableState]


class ReplayDeadLetters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pipeline: PipelineName
    dry_run: bool = False


class BackfillPipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pipeline: PipelineName
    from_ms: Annotated[int, Meta(ge=0, le=253_402_300_799_000)] | None = None
    """Records from this time on; from the first unless given."""
    to_ms: Annotated[int, Meta(ge=0, le=253_402_300_799_000)] | None = None
    """Records before this time; to the last unless given."""
    replace: bool = False
    """Make the rows anew even where they are there."""
    dry_run: bool = False


class SteerPipelines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = False


async def list_pipelines(request: Nothing, call: Call) -> PipelinesState:
    return call.parts.pipelines.state()


async def describe_pipeline(request: NamedPipeline, call: Call) -> PipelineState:
    found = next((each for each in call.parts.pipelines.state().pipelines if each.name == request.pipeline), None)
    if found is None:
        raise ResourceNotFound(f"no pipeline {request.pipeline!r} runs beside this node")
    return found


async def describe_tables(request: NamedPipeline, call: Call) -> PipelineTables:
    await describe_pipeline(request, call)
    tables = await call.parts.pipelines.tables(request.pipeline)
    # A letter tells of a record: only who may read its topic sees it.
    return PipelineTables(
        tables=[
            msgspec.structs.replace(
                table,
                letters=[each for each in table.letters if call.sees(Operation.READ, Resource.TOPIC, each.topic)],
            )
            for table in tables
        ]
    )


async def replay_dead_letters(request: ReplayDeadLetters, call: Call) -> OperationView:
    await describe_pipeline(NamedPipeline(pipeline=request.pipeline), call)

    async def work(progress: Progress) -> Done:
        tables = await call.parts.pipelines.tables(request.pipeline)
        waiting = sum(table.rows for table in tables if table.is_dead_letters)
        if request.dry_run:
            return Done(message=f"{waiting} dead letters would be judged again", is_dry_run=True)
        return Done(message=await call.parts.pipelines.replay(request.pipeline))

    return call.parts.operations.start("replay dead letters", request.pipeline, work)


async def backfill_pipeline(request: BackfillPipeline, call: Call) -> OperationView:
    await describe_pipeline(NamedPipeline(pipeline=request.pipeline), call)
    since, until = _moment(request.from_ms), _moment(request.to_ms)
    if since and until and since >= until:
        raise Invalid("from_ms: not before to_ms")

    async def work(progress: Progress) -> Done:
        if request.dry_run:
            span = f"from {since or 'the first record'} to {until or 'the last'}"
            return Done(message=f"what {request.pipeline} does not have {span} would be landed", is_dry_run=True)
        said = await call.parts.pipelines.backfill(
            request.pipeline, since=since, until=until, is_replacing=request.replace
        )
        return Done(message=said)

    return call.parts.operations.start("backfill", request.pipeline, work)


async def start_pipelines(request: SteerPipelines, call: Call) -> Done:
    if not request.dry_run:
        call.parts.pipelines.start()
    return Done(message="the pipeline process starts; Spark takes some seconds", is_dry_run=request.dry_run)


async def stop_pipelines(request: SteerPipelines, call: Call) -> Done:
    if not request.dry_run:
        await call.parts.pipelines.stop()
    return Done(message="the pipeline process is stopped; what it has landed stays", is_dry_run=request.dry_run)


def _moment(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
