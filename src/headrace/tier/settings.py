"""How records move to object storage, come back, and go away. Keys are `tier.*`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class TierSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Uploading, reading and keeping house. All need a restart."""

    upload_interval_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 10_000
    """Longest a record waits for its upload. Less means less exposure of `wal` topics, and more PUT requests."""

    upload_object_bytes: Annotated[int, Meta(ge=64 * 1024, le=512 * 1024 * 1024)] = 64 * 1024 * 1024
    """A partition with this much waiting is uploaded at once. Larger objects are cheaper and need more memory."""

    upload_stream_bytes: Annotated[int, Meta(ge=1024, le=512 * 1024 * 1024)] = 32 * 1024 * 1024
    """A partition that gathers this much before an upload gets an object of its own; others share one. Each object costs two
    PUT requests and milliseconds of CPU, whatever its size."""

    upload_waiting_bytes: Annotated[int, Meta(ge=1024 * 1024, le=64 * 1024**3)] = 128 * 1024 * 1024
    """When this much waits, whatever of it fills an object is uploaded without waiting for the interval. Less means less memory,
    and smaller objects below the size of one."""

    upload_concurrency: Annotated[int, Meta(ge=1, le=32)] = 2
    """Objects being uploaded at once. Each holds up to `tier.upload.object.bytes` of memory."""

    commit_linger_ms: Annotated[int, Meta(ge=0, le=10_000)] = 20
    """How long the first record of a `durability=object` topic waits for company. More company, fewer PUTs."""

    commit_bytes: Annotated[int, Meta(ge=1024, le=512 * 1024 * 1024)] = 8 * 1024 * 1024
    """`durability=object` records beyond this do not wait for company."""

    commit_concurrency: Annotated[int, Meta(ge=1, le=16)] = 3
    """Uploads of `durability=object` records under way at once. More of them, less waiting for the next, and more PUTs."""

    stop_upload_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 30_000
    """Longest that a clean stop (SIGTERM, Ctrl-C) takes to upload what only this disk has; what it could not upload is said in the
    log. Zero leaves it to the next start. A second signal stops at once. Give a pod this long, and ten seconds more, to end."""

    cache_read_size_bytes: Annotated[int, Meta(ge=8 * 1024 * 1024)] = 256 * 1024 * 1024
    """Memory for records read back from object storage. The hot tail is not in it and cannot be pushed out by it."""

    cache_disk_bytes: Annotated[int, Meta(ge=0)] = 4 * 1024 * 1024 * 1024
    """Disk space for records read back from a bucket (S3, GCS), so that a second reading does not fetch them again. The local
    store does not need it. Zero keeps nothing; so does a disk with less than 2 GiB left."""

    read_concurrency: Annotated[int, Meta(ge=1, le=256)] = 8
    """Downloads for catching-up consumers at once; more would take bandwidth and CPU from producers."""

    read_ahead_bytes: Annotated[int, Meta(ge=0, le=1024 * 1024 * 1024)] = 32 * 1024 * 1024
    """Most that is fetched ahead of one sequential reader."""

    read_pace_lag_ms: Annotated[int, Meta(ge=0, le=1000)] = 3
    """While producers write and the event loop is later than this, downloads for consumers that catch up slow down. Zero
    never slows them: they catch up sooner, and everybody else waits longer."""

    read_pace_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 32 * 1024 * 1024
    """Bytes per second that such consumers get all the same. More brings them to the end sooner at the others' expense."""

    sweep_interval_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 30_000
    """How often retention is applied and dead objects are looked for."""

    grace_ms: Annotated[int, Meta(ge=0, le=30 * 86_400_000)] = 3_600_000
    """How long a superseded or abandoned object stays, for readers that still hold its name."""

    compact_source_bytes: Annotated[int, Meta(ge=1024)] = 10 * 1024 * 1024
    """Segments smaller than this are merged with their neighbours."""

    compact_target_bytes: Annotated[int, Meta(ge=64 * 1024, le=1024 * 1024 * 1024)] = 64 * 1024 * 1024
    """Size that merging aims at."""

    compact_sources: Annotated[int, Meta(ge=2, le=1000)] = 10
    """Segments of one partition that have to wait to be worth a merge, and most that one merge takes."""

    compact_dead_percent: Annotated[int, Meta(ge=1, le=100)] = 25
    """Share of dead bytes (expired, deleted, compacted away) that objects in use may hold before the worst of them are written anew
    without them. Less means a smaller bucket and more copying; 100 never copies, and one slow partition keeps all that shared its
    objects. What was replaced stays for `tier.grace.ms`."""

    snapshot_interval_ms: Annotated[int, Meta(ge=100, le=86_400_000)] = 300_000
    """How often a changed metastore is copied to the bucket."""
