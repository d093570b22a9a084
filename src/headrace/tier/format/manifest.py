"""Commit manifests: what one metastore commit changed in the log, as a file in the bucket.

    #headrace manifest 1 <crc32c of the JSON, 8 hex digits>\\n
    {"number": 7, "cluster_id": ..., ...}

Manifests are numbered from 1 without gaps and written create-only. The metastore decides what a number holds;
the encoding is deterministic, so that whoever writes it after a crash writes the same bytes. A number that is
missing below an existing one is a commit whose manifest is a moment late, or lost: readers wait, and then say which it is.
JSON, because an operator with nothing but a bucket browser must be able to read it (ADR 0004).
"""

from typing import Final

import msgspec

from headrace.errors import Corrupted
from headrace.records.batch import Buffer
from headrace.tier.format.headed import body_of, with_head

VERSION: Final = 1


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic that this manifest speaks of, as it was at the commit."""

    topic_id: str
    """UUID in its usual spelling."""
    name: str
    partition_count: int
    is_internal: bool = False
    config: dict[str, str] = {}


class Aborted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A transaction that was aborted: its producer's records in these offsets must be skipped."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A range of one partition's offsets, and the bytes of the object that hold it."""

    topic_id: str
    partition: int
    base_offset: int
    end_offset: int
    key: str
    object_size: int
    footer_size: int
    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    leader_epoch: int
    last_stable_offset: int
    """Of the partition, when this was committed: `read_committed` goes no further."""
    aborted: tuple[Aborted, ...] = ()
    """Transactions whose abort marker lies in this segment; they may begin in an earlier one."""


class SegmentRef(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Names a committed segment; the key tells a merged segment from the one it replaced."""

    topic_id: str
    partition: int
    base_offset: int
    key: str


class LogStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: str
    partition: int
    offset: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One commit. Applied in this order: topics, removed, added, log starts, deleted topics."""

    number: int
    cluster_id: str
    created_ms: int
    broker_id: int = 0
    broker_epoch: int = 0
    topics: tuple[TopicEntry, ...] = ()
    removed: tuple[SegmentRef, ...] = ()
    added: tuple[Segment, ...] = ()
    log_starts: tuple[LogStart, ...] = ()
    deleted_topics: tuple[str, ...] = ()


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest's one and only bytes: fields in declared order, mappings sorted."""
    body = msgspec.json.encode(manifest, order="deterministic")
    return with_head("manifest", VERSION, body)


def decode_manifest(data: Buffer) -> Manifest:
    """Corrupted when the bytes are not a whole manifest, NewerFormat when a newer headrace wrote it."""
    body = body_of(data, "manifest", name="manifest", version_max=VERSION)
    try:
        return msgspec.json.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"manifest does not parse: {error}") from error


def missing_manifest(number: int, following: int) -> str:
    """What every reader says of a gap that does not close."""
    return (
        f"manifest {number} is missing from the bucket, and {following} is there: what was committed with it, and after it, cannot "
        "be told. A running node mends this within a minute; with the node's metastore lost as well, put the file back from a "
        "copy or a version of the bucket"
    )
