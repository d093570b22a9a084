"""Which ring a broker of several goes on with at a start: the one it had, or a new one where that was taken over, or nobody needs it.

After it has registered: from then on nobody begins to take its WAL over, so what is read here stays true for this life.
"""

from pathlib import Path
from typing import NamedTuple

from headrace.control.cluster import Cluster
from headrace.control.takeovers import Takeovers
from headrace.control.wal_plans import rings_of
from headrace.disk import Disk
from headrace.errors import NotLeader
from headrace.log import homes
from headrace.log.wal.writer import FENCE_NAME
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)


class WalHome(NamedTuple):
    directory: Path
    taken_ring: bytes
    """An earlier ring that another broker is about to take over; empty when there is none."""


async def settle_home(cluster: Cluster, name: str, first: Path, *, disk: Disk) -> WalHome:
    takeover = await Takeovers(cluster.store).read(name)
    taken_ring = takeover.value.ring_id if takeover is not None else b""
    disk.make_directory(first)
    home = homes.home_in_use(first, disk)
    ring_id = homes.ring_in(home, disk)
    if ring_id is not None and ring_id == taken_ring:
        # Whoever takes it over has not come to that yet.
        homes.fence(home, disk)
        home = homes.home_in_use(first, disk)
        disk.make_directory(home)
        ring_id = homes.ring_in(home, disk)
    needed = rings_of(cluster.topics, name)
    _clear_taken(first, needed, taken_ring if taken_ring in needed else b"", disk)
    if ring_id not in needed:
        homes.clear(home, disk)
    is_done = takeover is None or takeover.value.is_done
    return WalHome(home, b"" if is_done else taken_ring)


def _clear_taken(first: Path, needed: set[bytes], taken_ring: bytes, disk: Disk) -> None:
    """Clear what others have taken over. `NotLeader` where a ring is fenced that has records, and that nobody takes over."""
    for home in list(homes.homes(first, disk))[:-1]:
        ring_id = homes.ring_in(home, disk)
        if ring_id is None or ring_id == taken_ring:
            continue
        if ring_id in needed:
            raise NotLeader(
                f"the WAL in {home} is fenced and has records that nobody else has, but nobody takes it over: "
                f"remove {home / FENCE_NAME} to go on with it"
            )
        log.info("a WAL that others have taken over is removed", directory=str(home))
        homes.clear(home, disk)
