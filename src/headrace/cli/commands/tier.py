"""`headrace tier`: what lies in object storage, whether it is sound, and housekeeping by hand."""

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter

from headrace.cli.options import Json
from headrace.cli.output import fail, note, progress, say, show_fields, show_table

if TYPE_CHECKING:
    from headrace.config.settings import NodeSettings

app = App(
    name="tier",
    help="Look at what lies in object storage, and verify it.",
    help_epilogue="""Examples:

    headrace tier ls --data-dir /var/lib/headrace
    headrace tier verify --set object_store.type=s3 --set object_store.s3.bucket=logs
    headrace tier restore --data-dir /var/lib/headrace --config headrace.toml
""",
)

_PARTITION_COLUMNS = ("topic", "partition", "log_start", "end_offset", "segments", "objects", "bytes")
_SEGMENT_COLUMNS = ("partition", "base_offset", "end_offset", "records", "bytes", "key")
_SKIPPED_COLUMNS = ("topic", "partition", "base_offset", "end_offset", "by", "at_ms", "reason")
_T = TypeVar("_T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Location:
    """Which node's object store."""

    data_dir: Path | None = None
    """Directory of the node; `./data` unless said otherwise."""

    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None
    """TOML file of settings, as for `headrace up`."""

    assignments: Annotated[tuple[str, ...], Parameter(name=["--set", "-s"], negative="")] = ()
    """KEY=VALUE, over file and environment. Can be given more than once."""


_HERE = Location()


@app.command
def ls(
    topic: str | None = None,
    *,
    json: Json = False,
    location: Location = _HERE,
) -> None:
    """List partitions in the bucket, or the segments of one topic. Works with every broker stopped.

    Parameters
    ----------
    topic:
        Show this topic's segments, one line each.
    """
    from headrace.cli.tier_rows import partition_rows, segment_rows
    from headrace.node.maintenance import opened_bucket
    from headrace.tier.inventory import load_inventory

    async def load() -> Any:  # Any: the inventory, whose module is imported above only
        async with opened_bucket(_settings(location)) as blobs:
            return await load_inventory(blobs)

    inventory = _run(load())
    if topic is None:
        show_table(partition_rows(inventory), columns=_PARTITION_COLUMNS, as_json=json)
    else:
        show_table(segment_rows(inventory, topic), columns=_SEGMENT_COLUMNS, as_json=json)


@app.command
def verify(*, json: Json = False, location: Location = _HERE) -> None:
    """Read every committed byte and check every CRC and offset. Exit status 1 when anything is wrong.

    After `tier restore`, a node collects nothing until this has passed with the node stopped.
    """
    from msgspec import structs

    from headrace.node.maintenance import opened_bucket, opened_metastore
    from headrace.tier.inventory import load_inventory
    from headrace.tier.restore import release_hold
    from headrace.tier.verify import Verified, size_of
    from headrace.tier.verify import verify as check

    settings = _settings(location)

    async def run() -> Verified:
        async with opened_bucket(settings) as blobs:
            inventory = await load_inventory(blobs)
            with progress("verifying", size_of(inventory)) as advance:
                return await check(blobs, inventory, on_progress=advance)

    async def release() -> bool:
        async with opened_metastore(settings) as metastore:
            return await release_hold(metastore)

    found = _run(run())
    rows = [structs.asdict(finding) for finding in found.findings]
    if rows:
        show_table(rows, columns=("topic", "partition", "base_offset", "key", "problem"), as_json=json)
        fail(f"{len(rows)} of {found.segment_count} segments are damaged")
    show_fields({name: value for name, value in structs.asdict(found).items() if name != "findings"}, as_json=json)
    if (Path(settings.server.data_dir) / "metastore.sqlite").exists() and _if_stopped(release()):
        note("the restored metastore is released: collection may go on")


@app.command
def compact(*, location: Location = _HERE) -> None:
    """Merge small objects and compact by key now. The node must be stopped; a running one does this by itself."""
    from headrace.node.maintenance import opened_tier

    async def run() -> str:
        async with opened_tier(_settings(location)) as tier:
            dropped = await tier.key_compactor.run_once(is_forced=True)
            merged = await tier.compactor.run_once(objects_min=2)
            return f"{merged} segments merged, {dropped} records compacted away"

    say(_run(run()))


@app.command
def gc(*, location: Location = _HERE) -> None:
    """Apply retention and delete what nobody needs. The node must be stopped; a running one does this by itself."""
    from headrace.node.maintenance import opened_tier

    async def run() -> str:
        async with opened_tier(_settings(location)) as tier:
            await tier.sweeper.sweep()
            orphans = await tier.sweeper.collect_orphans()
            return f"{tier.metrics.tier_deleted_objects_total} objects and {orphans} orphans deleted"

    say(_run(run()))


@app.command
def skip(topic: str, partition: int, offset: int, *, json: Json = False, location: Location = _HERE) -> None:
    """Give up damaged records for good, so that consumers pass them. The node must be stopped.

    An empty batch takes the place of what cannot be read of the segment at OFFSET; everything else stays, under the same offsets.
    Who did it and when is kept; `headrace tier skipped` shows it. Copy the damaged object first if somebody may still want it: it is deleted
    like any object that was replaced.

    Parameters
    ----------
    topic:
        Name of the topic.
    partition:
        Number of the partition.
    offset:
        An offset that cannot be read, as `/health` or `headrace tier verify` names it.
    """
    from msgspec import structs

    from headrace.errors import NotFound
    from headrace.ids import Partition
    from headrace.node.maintenance import opened_tier
    from headrace.tier.skipping import Skipped

    async def run() -> list[Skipped]:
        async with opened_tier(_settings(location)) as tier:
            found = tier.partition_named(topic, Partition(partition))
            if found is None:
                raise NotFound(f"there is no partition {partition} of a topic {topic!r}")
            skipped = await tier.skipper.skip(found, offset, by=_who())
            await tier.ledger.write_pending()
            await tier.snapshots.save()
            return skipped

    show_table([structs.asdict(each) for each in _run(run())], columns=_SKIPPED_COLUMNS, as_json=json)


@app.command
def skipped(*, json: Json = False, location: Location = _HERE) -> None:
    """List what was given up with `skip`: by whom, when and why. The node must be stopped."""
    from msgspec import structs

    from headrace.node.maintenance import opened_metastore
    from headrace.tier.skipping import Skipped, all_skipped

    async def run() -> list[Skipped]:
        async with opened_metastore(_settings(location)) as metastore:
            return await all_skipped(metastore)

    show_table([structs.asdict(each) for each in _run(run())], columns=_SKIPPED_COLUMNS, as_json=json)


def _who() -> str:
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return f"user {os.getuid()}@{socket.gethostname()}"


@app.command
def restore(
    *,
    store_was_down: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    location: Location = _HERE,
) -> None:
    """Rebuild a lost metastore from the bucket alone. Needs a data directory without one.

    Parameters
    ----------
    store_was_down:
        The node took records while the object store was out of reach, and was lost before it came back: offsets go on far
        above those that the bucket knows of.
    """
    from msgspec import structs

    from headrace.clock import SystemClock
    from headrace.config.identity import broker_id
    from headrace.errors import Conflict
    from headrace.node.maintenance import opened_bucket, opened_metastore
    from headrace.node.metastore import METASTORE_FILE
    from headrace.tier.restore import Restored, restore_metastore
    from headrace.transforms.modules import ids_in

    settings = _settings(location)

    async def run() -> Restored:
        async with opened_bucket(settings) as blobs, opened_metastore(settings, is_new=True) as metastore:
            leader = broker_id(settings.server)
            try:
                return await restore_metastore(
                    blobs,
                    metastore,
                    leader=leader,
                    clock=SystemClock(),
                    module_ids=await ids_in(blobs),
                    was_store_down=store_was_down,
                )
            except Conflict as error:
                found = Path(settings.server.data_dir, METASTORE_FILE)
                raise Conflict(f"{error}: if {found} is not the one that counts, move it away first") from error

    restored = _run(run())
    show_fields(structs.asdict(restored), as_json=json)
    if restored.unnamed_objects:
        note(
            f"{restored.unnamed_objects} data objects are newer than all that the manifests name: unfinished uploads, or commits "
            "whose manifests are lost; they are never collected"
        )
    note("nothing is collected until `headrace tier verify` has passed")


def _settings(location: Location) -> "NodeSettings":
    from headrace.config.load import load
    from headrace.telemetry import configure_logging

    assignments = [f"data.dir={location.data_dir}"] if location.data_dir is not None else []
    settings = load(file=location.config, environ=os.environ, assignments=[*assignments, *location.assignments])
    configure_logging("warning", form=settings.server.logging_format)
    return settings


def _run(work: Coroutine[Any, Any, _T]) -> _T:  # Any: what a coroutine yields and is sent is asyncio's business
    return asyncio.run(work)


def _if_stopped(work: Coroutine[Any, Any, bool]) -> bool:  # Any: as above
    from headrace.errors import Fault

    try:
        return _run(work)
    except Fault:
        return False  # The node runs and holds its directory; the next verify with the node stopped will do it.
