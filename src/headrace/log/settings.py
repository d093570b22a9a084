"""How this node keeps the tail of its partitions."""

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.log.wal.file import CAPACITY_MIN

_RAM: Final = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The write-ahead log and the memory in front of it."""

    wal_path: str = "/var/lib/rustmq/wal"
    """Directory of the WAL, or the file or block device itself. A device must be blank at first, not mounted, and of at least
    `wal.capacity.bytes`; name it by a path that stays, as in /dev/disk/by-id. What lies beside a ring that is a file then lies
    in `data.dir`, under wal-device. Restart needed."""
    wal_capacity_bytes: Annotated[int, Meta(ge=CAPACITY_MIN)] = 10 * 1024**3
    """Size of the ring. More absorbs a longer outage of the object store; the disk must have it. Restart needed."""
    wal_spill_bytes: Annotated[int, Meta(ge=0)] = 10 * 1024**3
    """Most that is kept in spill files beside the ring while object storage refuses it: producers go on for longer. Takes
    no disk before, and never the last GiB of it. Zero: a full ring pauses producers at once. Restart needed."""
    wal_direct: bool = True
    """Bypass the page cache (O_DIRECT) where the filesystem can. Every flush is durable either way. Restart needed."""
    wal_lease_ms: Annotated[int, Meta(ge=2_000, le=60_000)] = 60_000
    """How long a broker of several goes on with `wal` topics while no controller has heard it. Only `headrace cluster give-up-wal`
    relies on it, and counts on a minute. Restart needed."""
    cache_write_size_bytes: Annotated[int, Meta(ge=1024 * 1024)] = max(_RAM // 10, 64 * 1024 * 1024)
    """Memory for the hot tail: consumers within it are served without touching a disk. Half of it holds what is uploaded as
    well; all of it what is not."""
    producer_id_expiration_ms: Annotated[int, Meta(ge=1000)] = 86_400_000
    """How long an idempotent producer that writes nothing is remembered. A retry after that may be written twice."""
    producer_ids_per_partition_max: Annotated[int, Meta(ge=1)] = 20_000
    """Idempotent producers that one partition remembers, at 1.2 KB each. Beyond it those that were silent for 15 minutes are
    forgotten early, else new ones are told to come back."""
    producer_ids_max: Annotated[int, Meta(ge=1)] = 500_000
    """The same for all partitions of this broker together: a producer counts once for each partition it writes to."""
