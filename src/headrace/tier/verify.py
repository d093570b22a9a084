"""Is everything that was committed still there, and what it was? Reads every live byte of the bucket and says.

Checked for each object: size, footer, the CRC of every run and of every batch in it, that batches fill their segment in
rising offsets and count what the manifests say. Offsets missing between segments are counted, not complained about:
key compaction and lost disks leave such holes.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from headrace.blob.store import BlobStore
from headrace.errors import Corrupted, HeadraceError
from headrace.records.batch import has_valid_crc, read_header
from headrace.tier.format.inventory import Inventory
from headrace.tier.format.manifest import Segment
from headrace.tier.format.object import Footer, check_run, decode_footer, iter_batches
from headrace.tier.format.plan import ObjectRange, plan, split

_READ_BYTES: Final = 16 * 1024 * 1024


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something is wrong with a segment."""

    topic: str
    partition: int
    base_offset: int
    key: str
    problem: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    object_count: int
    segment_count: int
    record_count: int
    size_bytes: int
    hole_count: int
    findings: tuple[Finding, ...]


def size_of(inventory: Inventory) -> int:
    """Bytes that `verify` will read."""
    return sum(segment.length for segment in _segments(inventory))


async def verify(
    blobs: BlobStore, inventory: Inventory, *, on_progress: Callable[[int], None] = lambda size: None
) -> Verified:
    """Goes on after a finding: one damaged object says nothing of the others."""
    findings: list[Finding] = []
    records = 0
    footers: dict[str, Footer] = {}
    for segment in sorted(_segments(inventory), key=lambda each: (each.key, each.position)):
        if segment.key not in footers:
            footers.clear()
        try:
            records += await _check_segment(blobs, inventory, segment, footers)
        except HeadraceError as error:
            findings.append(
                Finding(
                    topic=_name(inventory, segment),
                    partition=segment.partition,
                    base_offset=segment.base_offset,
                    key=segment.key,
                    problem=f"{type(error).__name__}: {error}",
                )
            )
        on_progress(segment.length)
    return Verified(
        object_count=len({segment.key for segment in _segments(inventory)}),
        segment_count=sum(1 for _ in _segments(inventory)),
        record_count=records,
        size_bytes=size_of(inventory),
        hole_count=_holes(inventory),
        findings=tuple(findings),
    )


async def _check_segment(blobs: BlobStore, inventory: Inventory, segment: Segment, footers: dict[str, Footer]) -> int:
    state = inventory.partition(segment.topic_id, segment.partition)
    whole = msgspec.structs.replace(state, segments=(segment,), log_start=0)
    ranges = plan(whole)
    if segment.key not in footers:
        info = await blobs.head(segment.key)
        if info.size != segment.object_size:
            raise Corrupted(f"{info.size} bytes where {segment.object_size} were committed")
        end = await blobs.get_range(segment.key, ranges[0].footer_position, segment.footer_size)
        footers[segment.key] = decode_footer(end)
    footer = footers[segment.key]
    count, last, size = 0, -1, 0
    for piece in split(ranges[0], footer, bytes_max=_READ_BYTES):
        data = memoryview(await blobs.get_range(piece.key, piece.position, piece.length))
        size += len(data)
        _check_runs(footer, piece, data)
        for batch in iter_batches(data):
            header = read_header(batch)
            if not has_valid_crc(batch):
                raise Corrupted(f"batch at offset {header.base_offset} does not match its CRC")
            if header.base_offset <= last or header.end_offset > segment.end_offset:
                raise Corrupted(f"batch at offset {header.base_offset} is out of place")
            last = header.end_offset - 1
            count += header.record_count
    if size != segment.length or count != segment.record_count:
        raise Corrupted(f"{count} records in {size} bytes; committed were {segment.record_count} in {segment.length}")
    return count


def _check_runs(footer: Footer, piece: ObjectRange, data: memoryview) -> None:
    for run in footer.runs:
        if piece.position <= run.position < piece.position + piece.length:
            start = run.position - piece.position
            check_run(run, data[start : start + run.length])


def _segments(inventory: Inventory) -> Iterator[Segment]:
    for state in inventory.partitions.values():
        yield from state.segments


def _holes(inventory: Inventory) -> int:
    return sum(
        after.base_offset > before.end_offset
        for state in inventory.partitions.values()
        for before, after in pairwise(state.segments)
    )


def _name(inventory: Inventory, segment: Segment) -> str:
    topic = inventory.topics.get(segment.topic_id)
    return topic.name if topic is not None else segment.topic_id
